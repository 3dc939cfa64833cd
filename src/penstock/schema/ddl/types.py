"""Column types as statements spell them → types as SHOW CREATE TABLE spells them; character sets and their sizes."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.binlog.charset import CHARSETS, charset_of_collation
from penstock.schema.ddl.tokens import NUMBER, STRING, WORD, SqlMode, Token, TokenReader, Unreadable, split_commas
from penstock.schema.model import CHARACTER_TYPES, INTEGER_TYPES
from penstock.schema.quoting import quoted_string

_SYNONYMS = {
    "INTEGER": "int",
    "INT1": "tinyint",
    "INT2": "smallint",
    "INT3": "mediumint",
    "MIDDLEINT": "mediumint",
    "INT4": "int",
    "INT8": "bigint",
    "DEC": "decimal",
    "NUMERIC": "decimal",
    "FIXED": "decimal",
    "NUMBER": "decimal",
    "REAL": "double",
    "FLOAT4": "float",
    "FLOAT8": "double",
    "CHARACTER": "char",
    "VARCHARACTER": "varchar",
    "VARCHAR2": "varchar",
    "NCHAR": "char",
    "NVARCHAR": "varchar",
    "GEOMCOLLECTION": "geometrycollection",
    "CLOB": "longtext",
    "RAW": "varbinary",
}
_NATIONAL = frozenset({"NCHAR", "NVARCHAR"})
WITH_CHARSET = CHARACTER_TYPES | {"enum", "set"}
BINARY_TWIN = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
_VARYING_BYTES_MAX = 0xFFFF
_BLOB_BYTES = {"tiny": 0xFF, "": 0xFFFF, "medium": 0xFF_FFFF, "long": 0xFFFF_FFFF}
_MAX_BYTES = {"utf8mb4": 4, "utf8mb3": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4}
_MAX_BYTES |= {"gbk": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2, "gb2312": 2, "ujis": 3, "eucjpms": 3}


def bytes_a_character(charset: str | None) -> int:
    """The most bytes that a character of this charset takes."""
    return _MAX_BYTES.get(charset or "", 1)


def charset_name(text: str, default: str | None = None) -> str:
    """A charset as tables name it: `utf8` is `utf8mb3`; the word DEFAULT stands for `default`."""
    name = text.lower()
    if name == "default":
        return default or "utf8mb4"
    return "utf8mb3" if name == "utf8" else name


def collation_charset(name: str) -> str | None:
    """The charset that a collation implies; None for one that fits every charset (`uca1400_ai_ci`, DEFAULT)."""
    charset = charset_of_collation(name)
    return charset if charset in CHARSETS else None


@dataclass
class Spelled:
    """The parts of a column's type as they were read so far."""

    base: str
    arguments: list[str]
    elements: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    byte: bool = False
    serial: bool = False


def read_type(reader: TokenReader, sql_mode: int) -> Spelled:
    """Takes the type's name and what stands in parentheses after it."""
    if reader.now.kind != WORD:
        raise reader.unreadable()
    word = reader.next().upper
    charset = "utf8mb3" if word in _NATIONAL else None
    if word == "NATIONAL":
        charset = "utf8mb3"
        word = reader.next().upper
    base = _SYNONYMS.get(word, word.lower())
    if word == "DOUBLE":
        reader.word("PRECISION")
    elif word == "REAL" and sql_mode & SqlMode.REAL_AS_FLOAT:
        base = "float"
    elif (word == "DATE" and sql_mode & SqlMode.ORACLE) or (word == "TIMESTAMP" and sql_mode & SqlMode.MAXDB):
        base = "datetime"
    elif word in ("CHAR", "CHARACTER", "NCHAR") and (
        reader.word("VARYING") or reader.any_word("VARCHAR", "VARCHARACTER")
    ):
        base = "varchar"
    elif word == "LONG":
        base = "mediumblob" if reader.any_word("VARBINARY", "BYTE") else "mediumtext"
        if reader.any_word("VARCHAR", "VARCHARACTER", "CHAR", "CHARACTER"):
            reader.word("VARYING")
    elif word in ("BOOL", "BOOLEAN"):
        return Spelled("tinyint", ["1"])
    elif word == "SERIAL":
        return Spelled("bigint", [], unsigned=True, serial=True)
    arguments: list[str] = []
    elements: tuple[str, ...] = ()
    if reader.sees("("):
        inside = reader.inside()
        if base in ("enum", "set"):
            elements = tuple(string_value(part).rstrip(" ") for part in split_commas(inside) if part)
        else:
            arguments = [t.text for t in inside if t.kind == NUMBER]
            if not all(text.isdigit() for text in arguments):
                raise reader.unreadable()
    if word == "NUMBER" and not arguments and sql_mode & SqlMode.ORACLE:
        base = "double"
    return Spelled(base, arguments, elements, charset=charset)


def string_value(tokens: list[Token]) -> str:
    """The text of `'a'`, `'a' 'b'`, `_utf8mb4'a'`, `N'a'`, `x'61'`, `0x61`, `b'1100001'`."""
    try:
        return _string_value(tokens)
    except ValueError:
        raise Unreadable(f"digits that are none: {' '.join(token.text for token in tokens)!r}") from None


def _string_value(tokens: list[Token]) -> str:
    if len(tokens) == 2 and tokens[0].kind == WORD and tokens[1].kind == STRING:
        if tokens[0].upper == "X":
            return _from_bytes(bytes.fromhex(tokens[1].text))
        if tokens[0].upper == "B":
            return _from_bits(tokens[1].text)
    if len(tokens) == 1 and tokens[0].kind == WORD and tokens[0].text[:2] in ("0x", "0b"):
        digits = tokens[0].text[2:]
        return (
            _from_bytes(bytes.fromhex(digits.rjust(-(-len(digits) // 2) * 2, "0")))
            if tokens[0].text[1] == "x"
            else _from_bits(digits)
        )
    return "".join(token.text for token in tokens if token.kind == STRING)


def _from_bits(digits: str) -> str:
    return _from_bytes(int(digits or "0", 2).to_bytes(-(-len(digits) // 8), "big"))


def _from_bytes(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def type_text(spelled: Spelled, charset: str | None) -> tuple[str, str | None]:
    """The whole type, and the column's charset: None for types that have none."""
    base = spelled.base
    if base in WITH_CHARSET:
        if (charset == "binary" or spelled.byte) and base in BINARY_TWIN:
            base, charset = BINARY_TWIN[base], None
    elif base == "json":
        charset = "utf8mb4"
    else:
        charset = None
    return _spelling(base, spelled, charset), charset


def _spelling(base: str, spelled: Spelled, charset: str | None) -> str:
    arguments = list(spelled.arguments)
    if spelled.elements:
        return f"{base}({','.join(map(quoted_string, spelled.elements))})"
    if base == "decimal":
        arguments = [*(arguments or ["10"]), "0"][:2]
        if arguments[0] == "0":
            arguments[0] = "10"
    elif base in ("char", "binary", "bit") and not arguments:
        arguments = ["1"]
    elif base == "float" and len(arguments) == 1:
        base, arguments = ("float" if int(arguments[0]) <= 24 else "double"), []
    elif base in ("time", "datetime", "timestamp") and arguments == ["0"]:
        arguments = []
    elif base in ("text", "blob") and arguments:
        base, arguments = _sized(base, int(arguments[0]) * bytes_a_character(charset)), []
    elif base in ("varchar", "varbinary") and arguments:
        return varying(base, int(arguments[0]), charset)
    elif base in ("tinytext", "mediumtext", "longtext", "tinyblob", "mediumblob", "longblob", "date"):
        arguments = []
    text = f"{base}({','.join(arguments)})" if arguments else base
    if spelled.unsigned and (base in INTEGER_TYPES or base in ("decimal", "float", "double")):
        text += " unsigned"
    if spelled.zerofill:
        text += " zerofill"
    return text


def varying(base: str, size: int, charset: str | None) -> str:
    """`varchar` or `varbinary` of so many characters. One that is too long for a row is refused in strict mode, so that
    it is never logged; without it the server makes a text or blob that holds as much."""
    size_bytes = size * bytes_a_character(charset)
    if size_bytes > _VARYING_BYTES_MAX:
        return _sized("text" if base == "varchar" else "blob", size_bytes)
    return f"{base}({size})"


def _sized(base: str, size: int) -> str:
    return next((prefix + base for prefix, most in _BLOB_BYTES.items() if size <= most), "long" + base)


def converted(base: str, old: str | None, new: str) -> str:
    """The type of a text column whose charset CONVERT TO changes: one that holds as many characters as before."""
    prefix = base.removesuffix("text")
    return _sized("text", _BLOB_BYTES[prefix] // bytes_a_character(old) * bytes_a_character(new))
