"""Character sets whose bytes are not UTF-8: the code point of each of their characters, as MariaDB's server has it.

Most come from Python's codecs, and differ from the server's in some characters; tests/binlog/test_charsets.py compares
all of them with a real server. A character of one byte is in `single`, one of two in `double`, one of three, which
begins with 0x8F, in `triple`.

Servers store bytes that their charset has no character for, as long as they have the shape of one: a NEC character in a
column of sjis, 0xA1 in one of hebrew. A SELECT prints a question mark for them. They are U+FFFD here, and only bytes that
no server stores are NONE.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NONE = 0xFFFFFFFF  # no server stores this
REPLACEMENT = 0xFFFD

_NO_TABLE = np.empty(0, np.uint32)
_NO_TABLE.flags.writeable = False  # as the bytes of a binlog: then the kernels are compiled for one type


class CharsetTable(NamedTuple):
    single: npt.NDArray[np.uint32]  # by the byte; NONE also for a byte that begins a longer character
    double: npt.NDArray[np.uint32]  # by both bytes, big-endian; empty if there are none
    triple: npt.NDArray[np.uint32]  # by the last two of three


# Charset → Python's codec.
_SINGLE = {
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852",
    "cp866": "cp866", "greek": "iso8859_7", "hebrew": "iso8859_8", "hp8": "hp_roman8", "koi8r": "koi8_r",
    "ascii": "ascii", "koi8u": "koi8_u", "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13",
    "macce": "mac_latin2", "macroman": "mac_roman", "swe7": "ascii", "tis620": "tis_620",
}  # fmt: skip
_DOUBLE = {
    "big5": "big5", "cp932": "cp932", "euckr": "cp949", "gb2312": "gb2312", "gbk": "gbk", "sjis": "shift_jis",
    "ujis": "euc_jp", "eucjpms": "euc_jp",
}  # fmt: skip
# The shape of a character of two bytes: the ranges of the first, and of the second.
_Ranges = tuple[tuple[int, int], ...]
_EUC_JP: tuple[_Ranges, _Ranges] = (((0xA1, 0xFE),), ((0xA1, 0xFE),))
_SJIS: tuple[_Ranges, _Ranges] = (((0x81, 0x9F), (0xE0, 0xFC)), ((0x40, 0x7E), (0x80, 0xFC)))
_SHAPES: dict[str, tuple[_Ranges, _Ranges]] = {
    "big5": (((0xA1, 0xF9),), ((0x40, 0x7E), (0xA1, 0xFE))),
    "cp932": _SJIS,
    "euckr": (((0x81, 0xFE),), ((0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE))),
    "gb2312": (((0xA1, 0xF7),), ((0xA1, 0xFE),)),
    "gbk": (((0x81, 0xFE),), ((0x40, 0x7E), (0x80, 0xFE))),
    "sjis": _SJIS,
    "ujis": _EUC_JP,
    "eucjpms": _EUC_JP,
}
# The upper half of charsets without a codec; U+FFFF where the charset has no character.
_UPPER = {
    "armscii8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"
        "\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\u2741\xa7\u0589)(\xbb\xab\u2014.\u055d,-\u055f\u2026\u055c\u055b"
        "\u055e\u0531\u0561\u0532\u0562\u0533\u0563\u0534\u0564\u0535\u0565\u0536\u0566\u0537\u0567\u0538"
        "\u0568\u0539\u0569\u053a\u056a\u053b\u056b\u053c\u056c\u053d\u056d\u053e\u056e\u053f\u056f\u0540"
        "\u0570\u0541\u0571\u0542\u0572\u0543\u0573\u0544\u0574\u0545\u0575\u0546\u0576\u0547\u0577\u0548"
        "\u0578\u0549\u0579\u054a\u057a\u054b\u057b\u054c\u057c\u054d\u057d\u054e\u057e\u054f\u057f\u0550"
        "\u0580\u0551\u0581\u0552\u0582\u0553\u0583\u0554\u0584\u0555\u0585\u0556\u0586\u2019'"
    ),
    "dec8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"
        "\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xa1\xa2\xa3\uffff\xa5\uffff\xa7\xa4\xa9\xaa\xab\uffff\uffff\uffff"
        "\uffff\xb0\xb1\xb2\xb3\uffff\xb5\xb6\xb7\uffff\xb9\xba\xbb\xbc\xbd\uffff\xbf\xc0\xc1\xc2\xc3\xc4\xc5"
        "\xc6\xc7\xc8\xc9\xca\xcb\xcc\xcd\xce\xcf\uffff\xd1\xd2\xd3\xd4\xd5\xd6\u0152\xd8\xd9\xda\xdb\xdc"
        "\u0178\uffff\xdf\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xee\xef\uffff\xf1\xf2\xf3"
        "\xf4\xf5\xf6\u0153\xf8\xf9\xfa\xfb\xfc\xff\uffff\uffff"
    ),
    "geostd8": (
        "\u20ac\uffff\u201a\uffff\u201e\u2026\u2020\u2021\uffff\u2030\uffff\u2039\uffff\uffff\uffff\uffff"
        "\uffff\u2018\u2019\u201c\u201d\u2022\u2013\u2014\uffff\uffff\uffff\u203a\uffff\uffff\uffff\uffff\xa0"
        "\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9"
        "\xba\xbb\xbc\xbd\xbe\xbf\u10d0\u10d1\u10d2\u10d3\u10d4\u10d5\u10d6\u10f1\u10d7\u10d8\u10d9\u10da"
        "\u10db\u10dc\u10f2\u10dd\u10de\u10df\u10e0\u10e1\u10e2\u10f3\u10e3\u10e4\u10e5\u10e6\u10e7\u10e8"
        "\u10e9\u10ea\u10eb\u10ec\u10ed\u10ee\u10f4\u10ef\u10f0\u10f5\uffff\uffff\uffff\uffff\uffff\uffff"
        "\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff\uffff"
        "\uffff\u2116\uffff\uffff"
    ),
    "keybcs2": (
        "\u010c\xfc\xe9\u010f\xe4\u010e\u0164\u010d\u011b\u011a\u0139\xcd\u013e\u013a\xc4\xc1\xc9\u017e\u017d"
        "\xf4\xf6\xd3\u016f\xda\xfd\xd6\xdc\u0160\u013d\xdd\u0158\u0165\xe1\xed\xf3\xfa\u0148\u0147\u016e\xd4"
        "\u0161\u0159\u0155\u0154\xbc\xa1\xab\xbb\u2591\u2592\u2593\u2502\u2524\u2561\u2562\u2556\u2555\u2563"
        "\u2551\u2557\u255d\u255c\u255b\u2510\u2514\u2534\u252c\u251c\u2500\u253c\u255e\u255f\u255a\u2554"
        "\u2569\u2566\u2560\u2550\u256c\u2567\u2568\u2564\u2565\u2559\u2558\u2552\u2553\u256b\u256a\u2518"
        "\u250c\u2588\u2584\u258c\u2590\u2580\u03b1\xdf\u0393\u03c0\u03a3\u03c3\xb5\u03c4\u03a6\u0398\u03a9"
        "\u03b4\u221e\u03c6\u03b5\u2229\u2261\xb1\u2265\u2264\u2320\u2321\xf7\u2248\xb0\u2219\xb7\u221a\u207f"
        "\xb2\u25a0\xa0"
    ),
}
# Where the server has another character than the codec, or one where the codec has none.
_OTHERS: dict[str, dict[int, str]] = {
    "cp866": {0xFC: "ⁿ", 0xFD: "²"},
    "greek": {0xA1: "ʽ", 0xA2: "ʼ"},
    "hebrew": {0xAF: "‾"},
    "koi8u": {0x95: "•"},
    "latin1": {byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "swe7": dict(zip(b"@[\\]^`{|}~", "ÉÄÖÅÜéäöåü", strict=True)),
    "tis620": dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd"),
    "big5": dict(zip(range(0xF9D6, 0xF9DD), "碁銹裏墻恒粧嫺", strict=True)),
    "sjis": {0x815F: "\\"},
    "ujis": {0xA1C0: "\\"},
}
_CP932_PRIVATE = (0x80, 0xA0, 0xFD, 0xFE, 0xFF)  # bytes that Python's codec has, and the server has not
_USER_DEFINED, _USER_DEFINED_3 = 0xE000, 0xE3AC  # where rows 0xF5 to 0xFE of the two Japanese sets begin
# Of eucjpms, from 0x8FF3F3 to 0x8FF4FE: what IBM added.
_IBM = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓"
    "﨑德悅愠敎昻晥晴朗栁﨓﨔橫櫢淸淲瀨凞猪甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇"
    "諸譿賴赶﨣﨤逸郞都鄕﨧﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑"
)


@functools.cache
def charset_table(charset: str) -> CharsetTable | None:
    """The characters of a charset; None if its bytes are Unicode in some form, or it has longer ones (gb18030)."""
    if charset in _UPPER:
        low = np.arange(128, dtype=np.uint32)
        upper = np.array(
            [REPLACEMENT if character == "\uffff" else ord(character) for character in _UPPER[charset]], np.uint32
        )
        return CharsetTable(_fixed(np.concatenate([low, upper])), _NO_TABLE, _NO_TABLE)
    codec = _SINGLE.get(charset) or _DOUBLE.get(charset)
    if codec is None:
        return None
    single = _decoded(codec, [bytes([byte]) for byte in range(256)])
    double = triple = _NO_TABLE
    if charset in _DOUBLE:
        double, triple = _double(charset, codec), _triple(charset)
    if charset == "cp932":
        single[list(_CP932_PRIVATE)] = NONE
    for code, character in _OTHERS.get(charset, {}).items():
        (single if code < 256 else double)[code] = ord(character)
    if charset in _SINGLE:
        single[single == NONE] = REPLACEMENT
    return CharsetTable(_fixed(single), _fixed(double), _fixed(triple))


def _fixed(table: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    table.flags.writeable = False
    return table


def _decoded(codec: str, raw: list[bytes]) -> npt.NDArray[np.uint32]:
    table = np.full(len(raw), NONE, np.uint32)
    for k, one in enumerate(raw):
        try:
            text = one.decode(codec)
        except UnicodeDecodeError:
            continue
        if len(text) == 1:
            table[k] = ord(text)
    return table


def _double(charset: str, codec: str) -> npt.NDArray[np.uint32]:
    table = np.full(65536, NONE, np.uint32)
    table[0x8000:] = _decoded(codec, [bytes([code >> 8, code & 0xFF]) for code in range(0x8000, 0x10000)])
    if charset in ("ujis", "eucjpms"):
        for row in range(0xA1, 0xFF):
            codes = (row << 8) + np.arange(0xA1, 0xFF)
            if row >= 0xF5:
                table[codes] = _USER_DEFINED + (row - 0xF5) * 94 + np.arange(94)
            elif charset == "eucjpms":  # the same rows as cp932, elsewhere
                table[codes] = _decoded("cp932", [_shift_jis(row - 0xA0, cell) for cell in range(1, 95)])
    firsts, seconds = _SHAPES[charset]
    for low, high in firsts:
        for first in range(low, high + 1):
            for least, most in seconds:
                part = table[first << 8 | least : (first << 8 | most) + 1]
                part[part == NONE] = REPLACEMENT
    return table


def _shift_jis(row: int, cell: int) -> bytes:
    first = (row - 1) // 2 + (0x81 if row <= 62 else 0xC1)
    return bytes([first, cell + 0x3F + (cell >= 64) if row % 2 else cell + 0x9E])


def _triple(charset: str) -> npt.NDArray[np.uint32]:
    if charset not in ("ujis", "eucjpms"):
        return _NO_TABLE
    table = np.full(65536, NONE, np.uint32)
    cells = np.arange(0xA1, 0xFF)
    for row in range(0xA1, 0xF5):
        table[(row << 8) + cells] = _decoded("euc_jp", [bytes([0x8F, row, cell]) for cell in cells])
    for row in range(0xF5, 0xFF):
        table[(row << 8) + cells] = _USER_DEFINED_3 + (row - 0xF5) * 94 + np.arange(94)
    if charset == "eucjpms":
        table[[0xA2B7, 0xA2C3]] = ord("～"), ord("￤")
        table[[*range(0xF3F3, 0xF3FF), *range(0xF4A1, 0xF4FF)]] = [ord(character) for character in _IBM]
    for row in range(0xA1, 0xFF):
        part = table[row << 8 | 0xA1 : (row << 8 | 0xFE) + 1]
        part[part == NONE] = REPLACEMENT
    return table
