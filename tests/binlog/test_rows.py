"""The row decoder against values packed by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.binlog.errors import BadEvent
from penstock.binlog.events import is_rows, split_events
from penstock.binlog.rows import DecodedRows, decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ROWS_TYPES
from penstock.binlog.types import ColumnType as C
from penstock.errors import NotSupported
from tests.binlog.build import FDE, decimal, event, image, msb_bits, rows, table_map, time2, tlv
from tests.support.budget import scaled


def decode(buffer: bytes) -> DecodedRows:
    events = split_events(buffer)
    ((layout, chosen),) = group_rows(buffer, events, FDE).groups()
    start = int(events.offset[layout])
    table = parse_table_map(buffer[start : start + int(events.size[layout])], FDE)
    (decoded,) = decode_rows(buffer, events, chosen, table, FDE)
    return decoded


def column(kind: int, meta: bytes, values: Sequence[bytes | None], metadata: bytes = b"") -> pa.Array[Any]:
    """One column of inserted rows."""
    buffer = table_map([(kind, meta)], metadata=metadata) + rows(30, 1, [image([value]) for value in values])
    array = decode(buffer).after[0]
    array.validate(full=True)
    return array


@pytest.mark.parametrize(
    ("kind", "width", "bits"),
    [(C.TINY, 1, 8), (C.SHORT, 2, 16), (C.INT24, 3, 32), (C.LONG, 4, 32), (C.LONGLONG, 8, 64)],
)
def test_integers(kind: int, width: int, bits: int) -> None:
    top = 1 << (8 * width - 1)
    signed = [-top, -1, 0, 1, top - 1]
    array = column(kind, b"", [v.to_bytes(width, "little", signed=True) for v in signed], tlv(1, msb_bits([False])))
    assert str(array.type) == f"int{bits}" and array.to_pylist() == signed
    unsigned = [0, 1, top, 2 * top - 1]
    array = column(kind, b"", [v.to_bytes(width, "little") for v in unsigned], tlv(1, msb_bits([True])))
    assert str(array.type) == f"uint{bits}" and array.to_pylist() == unsigned


def test_signedness_counts_year_and_not_bit() -> None:
    columns = [(C.YEAR, b""), (C.BIT, b"\1\0"), (C.TINY, b"")]
    buffer = table_map(columns, metadata=tlv(1, msb_bits([False, True])))
    buffer += rows(30, 3, [image([b"\x7c", b"\1", b"\xff"]), image([b"\0", b"\0", b"\0"])])
    found = [array.to_pylist() for array in decode(buffer).after]
    assert found == [[2024, 0], [1, 0], [255, 0]]


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, list[Decimal]]:
    precision = draw(st.integers(1, 65))
    scale = draw(st.integers(0, min(30, precision)))
    unscaled = draw(st.lists(st.integers(-(10**precision) + 1, 10**precision - 1), min_size=1, max_size=5))
    values = [Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -scale)) for v in unscaled]
    return precision, scale, values


@settings(max_examples=scaled(150))
@given(decimals())
def test_decimals(case: tuple[int, int, list[Decimal]]) -> None:
    import decimal as dec

    precision, scale, values = case
    with dec.localcontext() as context:
        context.prec = 80
        raw = [decimal(value, precision, scale) for value in values]
        array = column(C.NEWDECIMAL, bytes([precision, scale]), [*raw, None])
        if precision <= 38:
            assert array.type == pa.decimal128(precision, scale)
            assert array.to_pylist() == [*values, None]
        else:
            expected = [f"{value:.{scale}f}" if value else f"{Decimal(0):.{scale}f}" for value in values]
            assert array.to_pylist() == [*expected, None]


def test_decimal_with_impossible_digits() -> None:
    with pytest.raises(BadEvent, match="no server writes"):
        column(C.NEWDECIMAL, bytes([9, 0]), [b"\xff\xff\xff\xff"])


@settings(max_examples=scaled(100))
@given(st.integers(0, 6), st.integers(-3_020_399_000_000, 3_020_399_000_000))
def test_time2(fsp: int, micros: int) -> None:
    micros -= (abs(micros) % 10 ** (6 - fsp)) * (1 if micros > 0 else -1)
    assert column(C.TIME2, bytes([fsp]), [time2(micros, fsp)]).to_pylist() == [micros]


def test_dates_and_times() -> None:
    whole = (2024 * 13 + 2) << 22 | 29 << 17 | 12 << 12 | 34 << 6 | 56
    new = (0x8000000000 + whole).to_bytes(5, "big")
    assert column(C.DATETIME2, b"\x06", [new + (123456).to_bytes(3, "big")]).to_pylist() == [whole << 24 | 123456]
    assert column(C.DATETIME2, b"\x01", [new + bytes([70])]).to_pylist() == [whole << 24 | 700_000]
    assert column(C.DATETIME, b"", [struct.pack("<q", 20240229123456)]).to_pylist() == [whole << 24]
    assert column(C.DATE, b"", [(2024 << 9 | 0 << 5).to_bytes(3, "little"), b"\0\0\0"]).to_pylist() == [2024 << 9, 0]
    stamp = 1_700_000_000
    assert column(C.TIMESTAMP2, b"\x03", [struct.pack(">IH", stamp, 1230)]).to_pylist() == [stamp * 10**6 + 123_000]
    assert column(C.TIMESTAMP, b"", [struct.pack("<I", stamp), b"\0" * 4]).to_pylist() == [stamp * 10**6, 0]
    old = [(-123456).to_bytes(3, "little", signed=True), (8385959).to_bytes(3, "little")]
    assert column(C.TIME, b"", old).to_pylist() == [
        -(12 * 3600 + 34 * 60 + 56) * 10**6,
        (838 * 3600 + 59 * 60 + 59) * 10**6,
    ]
    with pytest.raises(BadEvent, match="no server writes"):
        column(C.DATETIME2, b"\x06", [b"\0" * 8])


def test_bit_enum_set_float() -> None:
    assert column(C.BIT, b"\1\1", [b"\1\xff", b"\0\0"]).to_pylist() == [511, 0]
    assert column(C.BIT, b"\0\x08", [b"\xff" * 8]).to_pylist() == [2**64 - 1]
    enum = column(C.STRING, bytes([C.ENUM, 2]), [b"\x2c\1", b"\0\0"])
    assert enum.type == pa.uint16() and enum.to_pylist() == [300, 0]
    assert column(C.STRING, bytes([C.SET, 8]), [b"\1\0\0\0\0\0\0\x80"]).to_pylist() == [1 << 63 | 1]
    assert column(C.FLOAT, b"\4", [struct.pack("<f", -1.5)]).to_pylist() == [-1.5]
    assert column(C.DOUBLE, b"\x08", [struct.pack("<d", 0.1), None]).to_pylist() == [0.1, None]


@pytest.mark.parametrize(
    ("collation", "codec", "text"),
    [
        (8, "cp1252", "café €"),
        (45, "utf-8", "表😀"),
        (33, "utf-8", "naïve"),
        (51, "cp1251", "Привет"),
        (28, "gbk", "中文"),
        (35, "utf-16-be", "Łódź"),
        (13, "shift_jis", "日本"),
        (11, "ascii", "plain"),
        (2304, "utf-8", "ü"),
    ],
)
def test_charsets(collation: int, codec: str, text: str) -> None:
    raw = text.encode(codec)
    metadata = tlv(2, bytes([0xFC, *struct.pack("<H", collation)]))
    values = [bytes([len(raw)]) + raw, b"\0", None, bytes([len(raw)]) + raw]
    array = column(C.VARCHAR, struct.pack("<H", 200), values, metadata)
    assert array.type == pa.string() and array.to_pylist() == [text, "", None, text]


def test_latin1_has_all_bytes() -> None:
    raw = bytes(range(256))
    array = column(C.VARCHAR, struct.pack("<H", 300), [struct.pack("<H", 256) + raw], tlv(2, bytes([8])))
    assert array.to_pylist()[0].encode("cp1252", "replace")[0x80] == 0x80
    assert array.to_pylist()[0][0x81] == "\x81" and array.to_pylist()[0][0x99] == "\u2122"


def test_text_that_is_not_its_charset_is_an_error() -> None:
    with pytest.raises(BadEvent, match="not utf8mb4"):
        column(C.VARCHAR, struct.pack("<H", 200), [b"\2\xff\xfe"], tlv(2, bytes([45])))
    with pytest.raises(NotSupported, match="of collation 999"):
        column(C.VARCHAR, struct.pack("<H", 200), [b"\1a"], tlv(2, b"\xfc" + struct.pack("<H", 999)))


def test_binary_gets_its_zeros_back() -> None:
    metadata = tlv(2, bytes([63]))
    assert column(C.STRING, bytes([C.STRING, 4]), [b"\2ab", b"\0", None], metadata).to_pylist() == [
        b"ab\0\0",
        b"\0" * 4,
        None,
    ]
    assert column(C.BLOB, b"\1", [b"\2ab", b"\0"], metadata).to_pylist() == [b"ab", b""]
    long = column(C.STRING, bytes([C.STRING ^ 0x10, 0x2C]), [struct.pack("<H", 300) + b"x" * 300], tlv(2, bytes([45])))
    assert long.to_pylist() == ["x" * 300]


def test_all_kinds_of_events_of_both_versions_in_order() -> None:
    def number(value: int) -> bytes:
        return struct.pack("<i", value)

    buffer = table_map([(C.LONG, b""), (C.LONG, b"")], table_id=1)
    buffer += rows(30, 2, [image([number(1), None]), image([number(2), number(20)])], table_id=1)
    buffer += table_map([(C.LONG, b""), (C.LONG, b"")], table_id=99)  # reopened: another id, the same layout
    buffer += rows(24, 2, [image([number(1), None]), image([number(1), number(10)])], table_id=99)
    buffer += rows(32, 2, [image([number(2), number(20)])], table_id=99)
    buffer += rows(23, 2, [image([number(3), number(30)])], table_id=1)
    found = decode(buffer)
    assert found.op.tobytes() == b"IIUDI"
    assert found.event.tolist() == [1, 1, 3, 4, 5] and found.row.tolist() == [0, 1, 0, 0, 0]
    assert found.before[0].to_pylist() == [None, None, 1, 2, None]
    assert found.before[1].to_pylist() == [None, None, None, 20, None]
    assert found.after[0].to_pylist() == [1, 2, 1, None, 3]
    assert found.after[1].to_pylist() == [None, 20, 10, None, 30]


def test_more_rows_than_the_scratch_holds() -> None:
    count = 40_000
    values = [image([struct.pack("<i", i), bytes([3]) + f"{i % 1000:03}".encode()]) for i in range(count)]
    buffer = table_map([(C.LONG, b""), (C.VARCHAR, struct.pack("<H", 10))], metadata=tlv(2, bytes([45])))
    buffer += b"".join(rows(30, 2, values[i : i + 7]) for i in range(0, count, 7))
    found = decode(buffer)
    assert found.after[0].to_pylist() == list(range(count))
    assert found.after[1].to_pylist() == [f"{i % 1000:03}" for i in range(count)]
    assert found.row.tolist() == [i % 7 for i in range(count)]


@pytest.mark.parametrize("dummy", [0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF])
def test_a_row_event_without_table_and_rows_only_ends_a_statement(dummy: int) -> None:
    buffer = table_map([(C.LONG, b"")]) + rows(30, 1, [image([b"\1\0\0\0"])]) + rows(30, 0, [], table_id=dummy)
    assert decode(buffer).after[0].to_pylist() == [1]
    mapped = table_map([(C.LONG, b"")], table_id=dummy) + rows(30, 1, [image([b"\2\0\0\0"])], table_id=dummy)
    assert decode(mapped).after[0].to_pylist() == [2]  # an id like any other where a table map has it


def test_a_wrong_value_names_its_own_event() -> None:
    """Not the first of those that are decoded together."""
    head = table_map([(C.VARCHAR, struct.pack("<H", 50))], metadata=tlv(2, bytes([45])))
    good, bad = rows(30, 1, [image([b"\1a"])] * 3), rows(30, 1, [image([b"\1a"]), image([b"\1\xff"])])
    for before in (0, 1, 5):
        place = len(head) + before * len(good)
        with pytest.raises(BadEvent, match=rf"offset {place} \("):
            decode(head + good * before + bad + good)
    documents = table_map([(C.JSON, b"\4")])
    fine = rows(30, 1, [image([struct.pack("<I", 2) + b"\x04\x01"])])
    with pytest.raises(BadEvent, match=rf"offset {len(documents) + 2 * len(fine)} \("):
        decode(documents + fine * 2 + rows(30, 1, [image([struct.pack("<I", 2) + b"\x04\x09"])]))
    impossible = table_map([(C.NEWDECIMAL, bytes([5, 9]))])
    with pytest.raises(BadEvent, match=rf"offset {len(impossible)} \(.*#1: decimal\(5,9\)"):
        decode(impossible + rows(30, 1, [image([b"\x80"])]))


def test_what_is_refused_or_wrong() -> None:
    head = table_map([(C.LONG, b""), (C.LONG, b"")])
    with pytest.raises(BadEvent, match="not as many columns"):
        decode(head + rows(30, 1, [image([b"\0" * 4])]))
    with pytest.raises(BadEvent, match="ends inside a row"):
        decode(head + rows(30, 2, [image([b"\0" * 4, b"\0" * 3])]))
    with pytest.raises(BadEvent, match="without a table map"):
        decode(rows(30, 2, [image([b"\0" * 4, b"\0" * 4])]))
    for kind in (20, 21, 22):
        with pytest.raises(NotSupported, match=r"PRE_GA_[A-Z]+_ROWS.*5\.1"):
            decode(head + event(kind, b"\0" * 20))
    for kind in (C.DECIMAL, 200):
        with pytest.raises(NotSupported, match="is not supported"):
            column(kind, b"", [b"\0"])


def test_columns_beyond_250() -> None:
    count = 300
    buffer = table_map([(C.TINY, b"")] * count)
    values: list[bytes | None] = [bytes([i % 100]) if i % 3 else None for i in range(count)]
    buffer += rows(30, count, [image(values)])
    found = decode(buffer)
    assert [array.to_pylist()[0] for array in found.after] == [i % 100 if i % 3 else None for i in range(count)]


def test_kernels_and_python_agree_on_what_row_events_are() -> None:
    assert {kind for kind in range(256) if is_rows(kind)} == ROWS_TYPES
