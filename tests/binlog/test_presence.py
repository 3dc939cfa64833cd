"""Images that lack columns: what a server left out is absent, and never NULL."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events
from penstock.binlog.rows import DecodedRows, decode_rows, group_rows, joined_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ColumnType as C
from tests.binlog.build import FDE, image, rows, table_map, tlv
from tests.support.budget import EXAMPLES

ABSENT = "absent"
OPS = {"I": 30, "U": 31, "D": 32}


def decode(buffer: bytes, bytes_max: int = 1 << 26) -> list[DecodedRows]:
    events = split_events(buffer)
    ((layout, chosen),) = group_rows(buffer, events, FDE).groups()
    start = int(events.offset[layout])
    table = parse_table_map(buffer[start : start + int(events.size[layout])], FDE)
    return list(decode_rows(buffer, events, chosen, table, FDE, bytes_max))


def shown(decoded: DecodedRows) -> list[tuple[str, list[Any] | None, list[Any] | None]]:
    """Each row by its operation and images, with ABSENT where a column is not there."""
    found = []
    for k, op in enumerate(decoded.op.tobytes().decode()):
        images: list[list[Any] | None] = []
        for columns, present, without in (
            (decoded.before, decoded.present_before, "I"),
            (decoded.after, decoded.present_after, "D"),
        ):
            values = [
                column[k].as_py() if present is None or present.column(c)[k] else ABSENT
                for c, column in enumerate(columns)
            ]
            if op == without:
                assert all(column[k].as_py() is None for column in columns)
            images.append(None if op == without else values)
        found.append((op, images[0], images[1]))
    return found


def bitmap(columns: int, present: list[int]) -> bytes:
    out = bytearray((columns + 7) // 8)
    for c in present:
        out[c >> 3] |= 1 << (c & 7)
    return bytes(out)


@st.composite
def tables(draw: st.DrawFn) -> tuple[int, list[tuple[str, list[Any], list[Any]]]]:
    """A number of columns, and events: operation, present columns of both images, rows with both images."""
    count = draw(st.integers(1, 20))
    some = st.lists(st.integers(0, count - 1), unique=True, min_size=1).map(sorted)
    value = st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1))
    events = []
    for _ in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from("IUD"))
        present = [draw(st.one_of(st.just(list(range(count))), some)) for _ in range(2)]
        found = [[[draw(value) for _ in side] for side in present] for _ in range(draw(st.integers(1, 3)))]
        events.append((op, present, found))
    return count, events


def packed_row(values: list[int | None]) -> bytes:
    """Text and numbers in turn would hide nothing here: all columns are INT, so that a shift of one is seen at once."""
    return image([None if value is None else struct.pack("<i", value) for value in values])


@settings(max_examples=EXAMPLES)
@given(tables(), st.sampled_from([1, 1 << 26]))
def test_any_columns_of_any_image(case: tuple[int, list[Any]], bytes_max: int) -> None:
    count, events = case
    buffer = table_map([(C.LONG, b"")] * count)
    expected = []
    for op, present, found in events:
        sides = {"I": (1,), "U": (0, 1), "D": (0,)}[op]
        bitmaps = tuple(bitmap(count, side) for side in present)
        images = [packed_row(row[side]) for row in found for side in sides]
        buffer += rows(OPS[op], count, images, present=(bitmaps[0], bitmaps[1]) if op == "U" else bitmaps[sides[0]])
        for row in found:
            full: list[list[Any] | None] = [None, None]
            for side in sides:
                known = dict(zip(present[side], row[side], strict=True))
                full[side] = [known.get(c, ABSENT) for c in range(count)]
            expected.append((op, full[0], full[1]))
    batches = decode(buffer, bytes_max)
    assert [row for batch in batches for row in shown(batch)] == expected
    joined = joined_rows(batches[::-1])
    assert shown(joined) == expected
    middle = len(joined) // 2
    assert shown(joined.slice(0, middle)) + shown(joined.slice(middle, len(joined))) == expected


def test_absent_is_not_null() -> None:
    """MINIMAL: the key before, what was set after. NOBLOB and FULL_NODUP are other choices of the same kind."""
    columns = [(C.LONG, b""), (C.BLOB, b"\2"), (C.VARCHAR, struct.pack("<H", 20))]
    buffer = table_map(columns, metadata=tlv(2, bytes([45])))
    one = struct.pack("<i", 1)
    buffer += rows(31, 3, [image([one]), image([None, b"\1x"])], present=(b"\1", b"\6"))
    buffer += rows(30, 3, [image([one, None, None])])
    (decoded,) = decode(buffer)
    assert shown(decoded) == [("U", [1, ABSENT, ABSENT], [ABSENT, None, "x"]), ("I", None, [1, None, None])]
    assert decoded.present_after is not None and decoded.present_after.column(0).tolist() == [False, True]


def test_full_images_have_no_mask() -> None:
    (decoded,) = decode(table_map([(C.LONG, b"")] * 9) + rows(31, 9, [image([None] * 9), image([b"\0" * 4] * 9)]))
    assert decoded.present_before is None and decoded.present_after is None


def test_an_insert_of_defaults_alone_is_a_row() -> None:
    (decoded,) = decode(table_map([(C.LONG, b"")] * 2) + rows(30, 2, [], present=b"\0"))
    assert shown(decoded) == [("I", None, [ABSENT, ABSENT])]


@pytest.mark.parametrize("kind", [30, 32])
def test_rows_of_no_bytes_never_end(kind: int) -> None:
    with pytest.raises(BadEvent, match="no server writes"):
        decode(table_map([(C.LONG, b"")] * 2) + rows(kind, 2, [b"\0"], present=b"\0"))


def test_memory_of_masks_is_that_of_their_bitmaps() -> None:
    count = 2000
    present = bitmap(4000, [0])
    buffer = table_map([(C.TINY, b"")] * 4000) + rows(30, 4000, [image([b"\1"])], present=present) * count
    held = sum(batch.present_after.bitmaps.nbytes for batch in decode(buffer) if batch.present_after is not None)
    assert held <= count * 500 * 2


def test_bits_beyond_the_columns_mean_nothing() -> None:
    (decoded,) = decode(table_map([(C.LONG, b"")] * 2) + rows(30, 2, [image([b"\0" * 4])], present=b"\xf1"))
    assert shown(decoded) == [("I", None, [0, ABSENT])]
    assert np.array_equal(decoded.op, np.frombuffer(b"I", np.uint8))
