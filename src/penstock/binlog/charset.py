"""The character sets of MySQL and MariaDB: collation id → charset → text. A charset that is not known is never guessed.

A half of a surrogate pair is a character to the servers in the UTF-8, UCS-2 and UTF-32 charsets, and none in Unicode:
its text is U+FFFD.
"""

from __future__ import annotations

import re

from penstock.binlog.charset_tables import NONE, CharsetTable, charset_table
from penstock.errors import NotSupported

_RANGES: tuple[tuple[int, int, str], ...] = (
    (54, 55, "utf16"),
    (60, 61, "utf32"),
    (101, 124, "utf16"),
    (128, 151, "ucs2"),
    (159, 159, "ucs2"),
    (160, 183, "utf32"),
    (192, 215, "utf8mb3"),
    (223, 223, "utf8mb3"),
    (224, 247, "utf8mb4"),
    (248, 250, "gb18030"),
    (255, 323, "utf8mb4"),
    # MariaDB: its own collations in blocks of 32, those of UCA 14 in blocks of 256
    (576, 607, "utf8mb3"),
    (608, 639, "utf8mb4"),
    (640, 671, "ucs2"),
    (672, 703, "utf16"),
    (736, 767, "utf32"),
    (2048, 2303, "utf8mb3"),
    (2304, 2559, "utf8mb4"),
    (2560, 2815, "ucs2"),
    (2816, 3071, "utf16"),
    (3072, 3327, "utf32"),
)
_SINGLE_TEXT = (
    "1 big5 84 big5 2 latin2 9 latin2 21 latin2 27 latin2 77 latin2 3 dec8 69 dec8 4 cp850 80 cp850 5 latin1 8 latin1 "
    "15 latin1 31 latin1 47 latin1 48 latin1 49 latin1 94 latin1 6 hp8 72 hp8 7 koi8r 74 koi8r 10 swe7 82 swe7 "
    "11 ascii 65 ascii 12 ujis 91 ujis 13 sjis 88 sjis 14 cp1251 23 cp1251 50 cp1251 51 cp1251 52 cp1251 16 hebrew "
    "71 hebrew 17 filename 18 tis620 89 tis620 19 euckr 85 euckr 20 latin7 41 latin7 42 latin7 79 latin7 22 koi8u "
    "75 koi8u 24 gb2312 86 gb2312 25 greek 70 greek 26 cp1250 34 cp1250 44 cp1250 66 cp1250 99 cp1250 28 gbk 87 gbk "
    "29 cp1257 58 cp1257 59 cp1257 30 latin5 78 latin5 32 armscii8 64 armscii8 33 utf8mb3 76 utf8mb3 83 utf8mb3 "
    "35 ucs2 90 ucs2 36 cp866 68 cp866 37 keybcs2 73 keybcs2 38 macce 43 macce 39 macroman 53 macroman 40 cp852 "
    "81 cp852 45 utf8mb4 46 utf8mb4 56 utf16le 62 utf16le 57 cp1256 67 cp1256 63 binary 92 geostd8 93 geostd8 "
    "95 cp932 96 cp932 97 eucjpms 98 eucjpms"
)
_SINGLE = _SINGLE_TEXT.split()
_NOPAD = 1024  # MariaDB's NO PAD variant of a collation is the collation + 1024


def _by_id() -> dict[int, str]:
    table = {i: name for first, last, name in _RANGES for i in range(first, last + 1)}
    table.update(zip(map(int, _SINGLE[::2]), _SINGLE[1::2], strict=True))
    table.update({i + _NOPAD: name for i, name in list(table.items()) if i < 900})
    return table


_BY_ID = _by_id()

CHARSETS = frozenset(_BY_ID.values())
"""Every character set of the servers, by the name that tables use."""

UTF8_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8"})
"""Charsets whose bytes are UTF-8 already."""

# Of those that are Unicode in some form, and of the one whose characters have up to four bytes.
_CODECS = {
    "gb18030": "gb18030",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
}
_GB18030_CHARACTER = re.compile(
    rb"[\x00-\x7f]|[\x81-\xfe][\x40-\x7e\x80-\xfe]|[\x81-\xfe][\x30-\x39][\x81-\xfe][\x30-\x39]"
)
_GB18030_SWAPPED = {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7}  # in the standard of 2005, which MySQL has; the codec is of 2000
_SURROGATE = re.compile("[\ud800-\udfff]")


def charset_of(collation_id: int) -> str | None:
    """The charset of a collation; `binary` for 63; None for an unknown id."""
    return _BY_ID.get(collation_id)


def charset_of_collation(name: str) -> str:
    """`utf8mb4` for `utf8mb4_general_ci`: a collation's name begins with its charset's."""
    charset = name.lower().partition("_")[0]
    return "utf8mb3" if charset == "utf8" else charset


def codec_of(charset: str) -> str:
    """The Python codec of a charset that has no table (charset_tables.py); refuses one that is not known by its name."""
    codec = _CODECS.get(charset)
    if codec is None:
        raise NotSupported(f"the character set {charset} is not known", hint="convert the column to utf8mb4")
    return codec


def decode_exactly(raw: bytes, charset: str) -> str:
    """`raw` as text. Raises `ValueError` for bytes that the charset does not have."""
    table = charset_table(charset)
    try:
        return decode_unicode(raw, codec_of(charset)) if table is None else _by_table(raw, table, None)
    except UnicodeDecodeError:
        raise ValueError(f"bytes that are not {charset}") from None


def decode_unicode(raw: bytes, codec: str) -> str:
    """`raw` as text. Raises `UnicodeDecodeError` for bytes that no server stores."""
    try:
        text = raw.decode(codec)
        return text.translate(_GB18030_SWAPPED) if codec == _CODECS["gb18030"] else text
    except UnicodeDecodeError:
        if codec == _CODECS["gb18030"]:
            return _gb18030(raw).translate(_GB18030_SWAPPED)
        return _SURROGATE.sub("\ufffd", raw.decode(codec, "surrogatepass"))


def _gb18030(raw: bytes) -> str:
    """Text with codes that have the shape of a character, and are none: U+FFFD."""
    out: list[str] = []
    at = 0
    while at < len(raw):
        found = _GB18030_CHARACTER.match(raw, at)
        if found is None:
            raise UnicodeDecodeError("gb18030", raw, at, at + 1, "not a character")
        out.append(found[0].decode("gb18030", "replace")[:1])
        at = found.end()
    return "".join(out)


def decode_text(raw: bytes, charset: str | None) -> str:
    """`raw` as text, with replacement characters for bytes outside the charset. For statements, never for data."""
    table = charset_table(charset or "utf8mb4")
    if table is not None:
        return _by_table(raw, table, "\ufffd")
    return raw.decode(_CODECS.get(charset or "utf8mb4", "utf_8"), "replace")


def _by_table(raw: bytes, table: CharsetTable, replacement: str | None) -> str:
    out: list[str] = []
    at = 0
    while at < len(raw):
        width = 1
        code = int(table.single[raw[at]])
        if code == NONE and len(table.triple) and raw[at] == 0x8F and at + 2 < len(raw):
            width, code = 3, int(table.triple[raw[at + 1] << 8 | raw[at + 2]])
        elif code == NONE and len(table.double) and at + 1 < len(raw):
            width, code = 2, int(table.double[raw[at] << 8 | raw[at + 1]])
        if code == NONE:
            if replacement is None:
                raise UnicodeDecodeError("binlog", raw, at, at + 1, "the charset has no such character")
            out.append(replacement)
            at += 1
        else:
            out.append(chr(code))
            at += width
    return "".join(out)
