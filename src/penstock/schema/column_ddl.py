"""Column definitions of CREATE and ALTER TABLE → `Column`, with types spelled as SHOW CREATE TABLE spells them."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.binlog.charset import charset_of_collation
from penstock.schema.model import CHARACTER_TYPES, INTEGER_TYPES, Column
from penstock.schema.tokens import NAME, NUMBER, STRING, SYMBOL, WORD, Token, TokenReader, quoted_string, split_commas

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
_WITH_CHARSET = CHARACTER_TYPES | {"enum", "set"}
_BINARY_TWIN = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
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


@dataclass
class _Spelled:
    """The parts of a column definition as they were read so far."""

    base: str
    arguments: list[str]
    elements: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None
    byte: bool = False
    nullable: bool = True
    primary_key: bool = False
    default: str | None = None


@dataclass(frozen=True)
class ColumnDefinition:
    """A column, and where ALTER TABLE puts it: first, after the column `after`, or last."""

    column: Column
    first: bool = False
    after: str | None = None


def read_column(reader: TokenReader, default_charset: str) -> ColumnDefinition:
    """Takes `name type attributes…` up to the end of the reader's tokens."""
    name = reader.name()
    spelled = _read_type(reader)
    first, after = _read_attributes(reader, spelled)
    return ColumnDefinition(_column(name, spelled, default_charset), first, after)


def _read_type(reader: TokenReader) -> _Spelled:
    token = reader.next()
    if token.kind != WORD:
        reader.at -= 1
        raise reader.unreadable()
    word = token.upper
    charset = "utf8mb3" if word in _NATIONAL else None
    if word == "NATIONAL":
        charset = "utf8mb3"
        word = reader.next().upper
    base = _SYNONYMS.get(word, word.lower())
    if word == "DOUBLE":
        reader.word("PRECISION")
    elif (word in ("CHAR", "CHARACTER", "NCHAR") and reader.word("VARYING")) or (
        word in ("NCHAR",) and reader.word("VARCHAR")
    ):
        base = "varchar"
    elif word == "LONG":
        base = "mediumblob" if reader.any_word("VARBINARY", "BYTE") else "mediumtext"
        reader.any_word("VARCHAR", "VARCHARACTER")
        reader.word("VARYING")
    elif word in ("BOOL", "BOOLEAN"):
        return _Spelled("tinyint", ["1"])
    elif word == "SERIAL":
        return _Spelled("bigint", [], unsigned=True, nullable=False)
    arguments: list[str] = []
    elements: tuple[str, ...] = ()
    if reader.now.kind == SYMBOL and reader.now.text == "(":
        inside = reader.inside()
        if base in ("enum", "set"):
            elements = tuple(part[-1].text.rstrip(" ") for part in split_commas(inside) if part)
        else:
            arguments = [t.text for t in inside if t.kind == NUMBER]
    return _Spelled(base, arguments, elements, charset=charset)


def _read_attributes(reader: TokenReader, spelled: _Spelled) -> tuple[bool, str | None]:
    """Reads everything after the type; passes over what does not change the shape of the table."""
    first = False
    after: str | None = None
    while not reader.done:
        if reader.word("UNSIGNED"):
            spelled.unsigned = True
        elif reader.word("ZEROFILL"):
            spelled.unsigned = spelled.zerofill = True
        elif reader.word("CHARACTER", "SET") or reader.word("CHAR", "SET") or reader.word("CHARSET"):
            reader.symbol("=")
            spelled.charset = charset_name(reader.name())
        elif reader.word("COLLATE"):
            reader.symbol("=")
            collation = charset_of_collation(reader.name())
            spelled.charset = spelled.charset or (None if collation == "default" else collation)
        elif reader.word("ASCII"):
            spelled.charset = "latin1"
        elif reader.word("UNICODE"):
            spelled.charset = "ucs2"
        elif reader.word("BYTE"):
            spelled.byte = True
        elif reader.word("NOT", "NULL"):
            spelled.nullable = False
        elif reader.word("PRIMARY"):
            reader.word("KEY")
            spelled.primary_key = True
        elif reader.word("UNIQUE"):
            reader.word("KEY")
        elif reader.word("KEY"):
            spelled.primary_key = True
        elif reader.word("DEFAULT"):
            spelled.default = _read_default(reader)
        elif reader.word("ON", "UPDATE") or reader.word("ON", "DELETE") or reader.word("COMMENT"):
            reader.next()
        elif reader.word("REFERENCES"):
            reader.qualified()
        elif reader.any_word("COMPRESSED"):
            pass  # the decoder refuses the column by name, from its table map
        elif reader.word("FIRST"):
            first = True
        elif reader.word("AFTER"):
            after = reader.name()
        elif reader.now.kind == SYMBOL and reader.now.text == "(":
            reader.skip_group()
        else:
            reader.next()
    return first, after


def _read_default(reader: TokenReader) -> str | None:
    """The default value as text; None for NULL. An expression keeps its spelling."""
    token = reader.now
    if token.kind == SYMBOL and token.text == "(":
        reader.inside()
        return reader.sql[token.start : reader.tokens[reader.at - 1].end]
    reader.next()
    if token.kind == SYMBOL and token.text in "+-":
        number = reader.next()
        return number.text if token.text == "+" else f"-{number.text}"
    if token.kind == WORD:
        follows = reader.now
        if follows.kind == STRING and (token.text.startswith("_") or token.upper in ("B", "X", "N")):
            reader.next()  # _utf8mb4'x', b'01', x'ff'
            return follows.text if token.text.startswith("_") or token.upper == "N" else f"{token.text}'{follows.text}'"
        if follows.kind == SYMBOL and follows.text == "(":
            reader.inside()
            return reader.sql[token.start : reader.tokens[reader.at - 1].end]
        return None if token.upper == "NULL" else token.text
    return token.text


def _column(name: str, spelled: _Spelled, default_charset: str) -> Column:
    base = spelled.base
    charset: str | None = None
    if base in _WITH_CHARSET:
        charset = charset_name(spelled.charset or default_charset)
        if (charset == "binary" or spelled.byte) and base in _BINARY_TWIN:
            base = _BINARY_TWIN[base]
            charset = None
    elif base == "json":
        charset = "utf8mb4"
    return Column(
        name,
        _type_text(base, spelled, charset),
        nullable=spelled.nullable and not spelled.primary_key,
        primary_key=spelled.primary_key,
        charset=charset,
        elements=spelled.elements,
        default=spelled.default,
    )


def _type_text(base: str, spelled: _Spelled, charset: str | None) -> str:
    arguments = list(spelled.arguments)
    if spelled.elements:
        return f"{base}({','.join(map(quoted_string, spelled.elements))})"
    if base == "decimal":
        arguments = [*(arguments or ["10"]), "0"][:2]
    elif base in ("char", "binary", "bit") and not arguments:
        arguments = ["1"]
    elif base == "float" and len(arguments) == 1:
        base, arguments = ("float" if int(arguments[0]) <= 24 else "double"), []
    elif base in ("time", "datetime", "timestamp") and arguments == ["0"]:
        arguments = []
    elif base in ("text", "blob") and arguments:
        base, arguments = _sized(base, int(arguments[0]) * bytes_a_character(charset)), []
    elif base in ("tinytext", "mediumtext", "longtext", "tinyblob", "mediumblob", "longblob", "date"):
        arguments = []
    text = f"{base}({','.join(arguments)})" if arguments else base
    if spelled.unsigned and (base in INTEGER_TYPES or base in ("decimal", "float", "double")):
        text += " unsigned"
    if spelled.zerofill:
        text += " zerofill"
    return text


def _sized(base: str, size: int) -> str:
    for prefix, most in (("tiny", 255), ("", 65_535), ("medium", (1 << 24) - 1)):
        if size <= most:
            return prefix + base
    return "long" + base


def key_columns(inside: list[Token]) -> list[str]:
    """The column names of `(a, b(10) DESC)`."""
    return [part[0].text for part in split_commas(inside) if part and part[0].kind in (WORD, NAME, STRING)]
