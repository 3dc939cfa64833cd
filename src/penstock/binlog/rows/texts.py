"""Columns of variable length as Arrow arrays: bytes as they are, text as UTF-8, binary JSON as text.

Python runs per value only for UTF-16, UTF-32, gb18030, compressed columns and unusual binary JSON, and there once for
each distinct value.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.charset import UTF8_CHARSETS, codec_of, decode_exactly, decode_unicode
from penstock.binlog.charset_tables import CharsetTable, charset_table
from penstock.binlog.json.binary import jsonb_to_text
from penstock.binlog.json.diff import apply_diffs, describe_diffs
from penstock.binlog.json.kernel import TEXT_MIN, TEXT_RATIO_MAX, print_documents
from penstock.binlog.rows import text_kernels, values
from penstock.binlog.rows.arrays import BadValue, Bytes, Places, check_row, check_size, variable_array
from penstock.binlog.rows.walk import NULL, PARTIAL
from penstock.binlog.types import EVENT_BYTES_MAX

ZLIB_GROWTH_MAX = 1032  # what zlib can make of a byte

_METHOD, _ZLIB, _WITHOUT_HEADER, _LENGTH_BYTES = 0xF0, 0x80, 0x08, 0x07


def read_binary(buf: Bytes, places: Places, *, width: int, pad: int = 0, arrow: Any = None) -> pa.Array[Any]:
    """The bytes as they are; with a `pad`, those of BINARY(pad) with the zero bytes that the server left out."""
    offsets = np.empty(len(places) + 1, np.int32)
    total = int(text_kernels.gather_sizes(buf, places, width, pad, offsets))
    check_size(total)
    out = np.empty(total, np.uint8)
    text_kernels.gather(buf, places, width, offsets, out)
    return variable_array(arrow or pa.binary(), places, offsets, out)


def text_reader(charset: str, width: int) -> Callable[[Bytes, Places], pa.Array[Any]]:
    """The reader of a text column. Raises `NotSupported` for a charset that is not known."""
    if charset in UTF8_CHARSETS:
        return partial(_read_utf8, charset=charset, width=width)
    table = charset_table(charset)
    if table is not None and charset == "ascii":
        return partial(_read_ascii, table=table, width=width)
    if table is not None:
        return partial(_read_by_table, charset=charset, table=table, width=width)
    codec = codec_of(charset)
    return partial(_read_each, width=width, what=charset, convert=lambda raw: decode_unicode(raw, codec))


def read_json(buf: Bytes, places: Places, *, width: int) -> pa.Array[Any]:
    """Binary JSON as the text that the server prints. Python runs for each distinct value that the kernel leaves."""
    raw = read_binary(buf, places, width=width)
    data: Any = raw.buffers()[2]
    starts: Any = raw.buffers()[1]
    starts = np.frombuffer(starts, np.int32, len(raw) + 1)
    offsets = np.empty(len(raw) + 1, np.int32)
    out = np.empty(TEXT_MIN * len(raw) + TEXT_RATIO_MAX * int(starts[-1]), np.uint8)
    left = np.empty(len(raw), np.bool_)
    total = int(print_documents(np.frombuffer(data, np.uint8), starts, out, offsets, left))
    check_size(total)
    texts = variable_array(pa.string(), places, offsets, out[:total].copy())
    rows = np.flatnonzero(left & (places >= 0))
    if not len(rows) and _is_valid(texts):
        return texts
    if not _is_valid(texts):  # strings with bytes that are not UTF-8
        rows = np.flatnonzero(places >= 0)
    return _with_texts(texts, rows, raw)


def _with_texts(texts: pa.Array[Any], rows: npt.NDArray[np.int64], raw: pa.Array[Any]) -> pa.Array[Any]:
    """`texts` with those of some rows made in Python."""
    encoded: Any = raw.take(rows).dictionary_encode()
    made: list[str] = []
    for k, value in enumerate(encoded.dictionary.to_pylist()):
        try:
            made.append(jsonb_to_text(value))
        except ValueError as error:
            raise BadValue(str(error), int(rows[encoded.indices.index(k).as_py()])) from None
    which = np.arange(len(texts))
    which[rows] = len(texts) + encoded.indices.to_numpy()
    valid = texts if len(rows) < len(texts) - texts.null_count else pa.nulls(len(texts), pa.string())
    return pa.concat_arrays([valid, pa.array(made, pa.string())]).take(which)


def read_partial_json(
    buf: Bytes, places: Places, before: pa.Array[Any], *, width: int, describe: bool
) -> pa.Array[Any]:
    """JSON of which some values are the differences to the documents `before`. Where there is none, it raises `BadValue`,
    or gives the differences themselves (`describe`).

    Python runs for each such row.
    """
    partial_rows = places >= PARTIAL
    whole = read_json(buf, np.where(partial_rows, np.int32(NULL), places), width=width).to_pylist()
    diffs = read_binary(buf, np.where(partial_rows, places - PARTIAL, np.int32(NULL)), width=width)
    for row in np.flatnonzero(partial_rows).tolist():
        document, diff = before[row].as_py(), diffs[row].as_py()
        if document is None and not describe:
            raise BadValue(
                "only its difference to a document that was not logged",
                row,
                hint="set binlog_row_image=FULL on the server",
            )
        try:
            whole[row] = describe_diffs(diff) if document is None else apply_diffs(document, diff)
        except (ValueError, RecursionError) as error:
            raise BadValue(str(error), row) from None
    return pa.array(whole, pa.string())


def read_decimal_texts(buf: Bytes, places: Places, *, precision: int, scale: int) -> pa.Array[Any]:
    """Decimals that are too long for Arrow's 128 bits, as text."""
    offsets = np.empty(len(places) + 1, np.int32)
    out = np.empty(max(1, len(places) * (precision + 3)), np.uint8)
    check_row(values.decimal_texts(buf, places, precision, scale, offsets, out), "a decimal with impossible digits")
    return variable_array(pa.string(), places, offsets, out[: offsets[-1]].copy())


def _read_utf8(buf: Bytes, places: Places, *, charset: str, width: int) -> pa.Array[Any]:
    array = read_binary(buf, places, width=width, arrow=pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        array = _without_surrogates(array)
        bad = _first_invalid(array)
        if bad >= 0:
            raise BadValue(f"bytes that are not {charset}", bad) from None
    return array


def _read_ascii(buf: Bytes, places: Places, *, table: CharsetTable, width: int) -> pa.Array[Any]:
    array = read_binary(buf, places, width=width, arrow=pa.string())
    data: Any = array.buffers()[2]
    if np.any(np.frombuffer(data, np.uint8) >= 0x80):
        return _read_by_table(buf, places, charset="ascii", table=table, width=width)
    return array


def _without_surrogates(array: pa.Array[Any]) -> pa.Array[Any]:
    """With U+FFFD for each half of a surrogate pair, which servers take for a character, and which has as many bytes."""
    validity, offsets, values = array.buffers()
    data: Any = values
    raw: Any = np.frombuffer(data, np.uint8).copy()
    halves = np.flatnonzero((raw[:-2] == 0xED) & (raw[1:-1] >= 0xA0) & (raw[1:-1] <= 0xBF) & (raw[2:] >> 6 == 2))
    for k, byte in enumerate(b"\xef\xbf\xbd"):
        raw[halves + k] = byte
    return pa.Array.from_buffers(array.type, len(array), [validity, offsets, pa.py_buffer(raw)], array.null_count)


def _first_invalid(array: pa.Array[Any]) -> int:
    """The first row that is not UTF-8, or -1. Half of what is left is looked at each time."""
    first, count = 0, len(array)
    if _is_valid(array):
        return -1
    while count > 1:
        half = count // 2
        if _is_valid(array.slice(first, half)):
            first += half
            half = count - half
        count = half
    return first


def _is_valid(array: pa.Array[Any]) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _read_by_table(buf: Bytes, places: Places, *, charset: str, table: CharsetTable, width: int) -> pa.Array[Any]:
    offsets = np.empty(len(places) + 1, np.int32)
    total, bad = text_kernels.recode_sizes(buf, places, width, *table, offsets)
    check_row(bad, f"bytes that are not {charset}")
    check_size(int(total))
    out = np.empty(total, np.uint8)
    text_kernels.recode(buf, places, width, *table, out)
    return variable_array(pa.string(), places, offsets, out)


def _read_each(buf: Bytes, places: Places, *, width: int, what: str, convert: Callable[[bytes], str]) -> pa.Array[Any]:
    """Converts each distinct value once, in Python."""
    encoded = read_binary(buf, places, width=width).dictionary_encode()
    texts: list[str] = []
    raws: list[Any] = encoded.dictionary.to_pylist()
    for k, value in enumerate(raws):
        try:
            texts.append(convert(value))
        except UnicodeDecodeError:
            raise BadValue(f"bytes that are not {what}", encoded.indices.index(k).as_py()) from None
        except ValueError as error:
            raise BadValue(str(error), encoded.indices.index(k).as_py()) from None
    return pa.array(texts, pa.string()).take(encoded.indices)


def read_compressed(buf: Bytes, places: Places, *, width: int, charset: str | None) -> pa.Array[Any]:
    """Values that MariaDB stores compressed (`COMPRESSED`), as text where the column has a charset.

    Decompressing is a call of zlib for each distinct value: no kernel can do it for many at once.
    """
    encoded = read_binary(buf, places, width=width).dictionary_encode()
    plain: list[bytes | str] = []
    raws: list[Any] = encoded.dictionary.to_pylist()
    for k, raw in enumerate(raws):
        try:
            value = _uncompressed(raw)
            plain.append(value if charset is None else decode_exactly(value, charset))
        except ValueError as error:
            row = encoded.indices.index(k).as_py()
            raise BadValue(str(error), row) from None
    return pa.array(plain, pa.binary() if charset is None else pa.string()).take(encoded.indices)


def _uncompressed(raw: bytes) -> bytes:
    """One value. Raises `ValueError` for bytes that no server writes."""
    if not raw or raw[0] == 0:
        return raw[1:]
    width = raw[0] & _LENGTH_BYTES
    if raw[0] & _METHOD != _ZLIB or not 1 <= width <= 4:
        raise ValueError(f"a compressed value that begins with {raw[0]}")
    size = int.from_bytes(raw[1 : 1 + width], "big")
    if size > EVENT_BYTES_MAX:
        raise ValueError(f"a compressed value of {size} bytes")
    inflater = zlib.decompressobj(-zlib.MAX_WBITS if raw[0] & _WITHOUT_HEADER else zlib.MAX_WBITS)
    try:
        plain = inflater.decompress(raw[1 + width :], size + 1)
    except zlib.error as error:
        raise ValueError(f"a compressed value that cannot be decompressed: {error}") from None
    if len(plain) != size or not inflater.eof:
        raise ValueError(f"a compressed value that is not of {size} bytes")
    return plain
