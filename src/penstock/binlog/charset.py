"""MySQL's character sets: collation id → charset name → Python codec.

A charset without an exact codec is refused by name, never guessed. MySQL's `latin1` is Windows-1252; the five bytes
that Windows-1252 leaves undefined are control characters of the same number.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

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
    # MariaDB: collations of UCA 14 in blocks of 256
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

UTF8_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Charsets whose bytes are UTF-8 already."""

_CODECS = {
    "big5": "big5",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "cp866": "cp866",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "sjis": "shift_jis",
    "tis620": "tis_620",
    "ucs2": "utf_16_be",
    "ujis": "euc_jp",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
    "ascii": "ascii",
    "utf8": "utf_8",
    "utf8mb3": "utf_8",
    "utf8mb4": "utf_8",
    "binary": "latin_1",
}
_MULTI_BYTE = frozenset(
    {"big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ucs2", "ujis", "utf16", "utf16le", "utf32"}
)


def charset_of(collation_id: int) -> str | None:
    """The charset of a collation; `binary` for 63; None for an unknown id."""
    return _BY_ID.get(collation_id)


def charset_of_collation(name: str) -> str:
    """`utf8mb4` for `utf8mb4_general_ci`: a collation's name begins with its charset's."""
    charset = name.lower().partition("_")[0]
    return "utf8mb3" if charset == "utf8" else charset


def codec_of(charset: str) -> str:
    """The Python codec that reads `charset` exactly; refuses by name where there is none."""
    codec = _CODECS.get(charset)
    if codec is None:
        raise NotSupported(
            f"the character set {charset} is not supported",
            hint="convert the column to utf8mb4",
        )
    return codec


@functools.cache
def single_byte_table(charset: str) -> npt.NDArray[np.uint32] | None:
    """The code point of each byte, 0xFFFFFFFF where the charset has none; None for multi-byte charsets."""
    if charset in _MULTI_BYTE or charset in UTF8_CHARSETS:
        return None
    codec = codec_of(charset)
    table = np.full(256, 0xFFFFFFFF, np.uint32)
    for byte in range(256):
        try:
            table[byte] = ord(bytes([byte]).decode(codec))
        except UnicodeDecodeError:
            if charset == "latin1":
                table[byte] = byte
    return table


def decode_text(raw: bytes, charset: str) -> str:
    """`raw` as text, with replacement characters for bytes outside the charset. For statements, never for data."""
    if charset in UTF8_CHARSETS or charset == "binary":
        return raw.decode("utf-8", "replace")
    return raw.decode(_CODECS.get(charset, "latin_1"), "replace")
