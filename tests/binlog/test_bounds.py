"""What hostile bytes may cost: memory and time stay in proportion to the bytes, or have a limit with a name."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from penstock.binlog.dump import VALUES_MAX, dump_events
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events
from penstock.binlog.rows import BATCH_BYTES_MAX, DecodedRows, decode_rows, group_rows
from penstock.binlog.rows.scratch import WALK_BYTES_MAX
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import MAGIC
from penstock.binlog.types import ColumnType as C
from penstock.errors import BadInput
from tests.binlog.build import FDE, POST_HEADER, event, image, packed, rows, table_map, tlv
from tests.support.bounded import MIB, bounded
from tests.support.budget import chosen_seed, scaled

# A batch, the walk that made it too large, a column that is joined, and the fixed costs of arrays.
BATCH_MIB = (2 * BATCH_BYTES_MAX + 2 * WALK_BYTES_MAX) / MIB
FORMAT = event(15, struct.pack("<H50sIB", 4, b"10.11.6-MariaDB", 0, 19) + POST_HEADER + b"\0" * 150 + b"\0" * 5)


def wide_nulls(columns: int, size: int) -> bytes:
    """A row of NULLs takes a bit for each column in the binlog, and eight bytes in a column."""
    row = b"\xff" * ((columns + 7) // 8)
    return table_map([(C.LONGLONG, b"")] * columns) + rows(30, columns, [row] * (size // len(row)))


def padded(columns: int, size: int) -> bytes:
    """An empty BINARY(255) takes one byte in the binlog, and 255 in a column."""
    binary = [(C.STRING, bytes([C.STRING, 255]))] * columns
    row = image([b"\0"] * columns)
    return table_map(binary, metadata=tlv(2, packed(63))) + rows(30, columns, [row] * (size // len(row)))


def decoded(buffer: bytes) -> Iterator[DecodedRows]:
    events = split_events(buffer)
    for layout, chosen in group_rows(buffer, events, FDE).groups():
        start = int(events.offset[layout])
        table = parse_table_map(buffer[start : start + int(events.size[layout])], FDE)
        yield from decode_rows(buffer, events, chosen, table, FDE)


@pytest.mark.parametrize("buffer", [wide_nulls(1017, 4 * MIB), wide_nulls(4096, 2 * MIB), padded(250, 4 * MIB)])
def test_a_batch_is_split_where_rows_grow(buffer: bytes) -> None:
    next(decoded(buffer))  # compiled now
    total = batches = 0
    with bounded(mib=BATCH_MIB, cpu_seconds=20):
        for batch in decoded(buffer):
            assert sum(column.nbytes for column in batch.after) <= BATCH_BYTES_MAX + WALK_BYTES_MAX
            total += len(batch)
            batches += 1
            del batch
    assert batches > 1 and total in (4 * MIB // 128, 2 * MIB // 512, 4 * MIB // 282)


def test_a_batch_that_was_split_has_every_row_once() -> None:
    values = [struct.pack("<i", i) for i in range(5000)]
    buffer = table_map([(C.LONG, b"")]) + b"".join(
        rows(30, 1, [image([value]) for value in values[at : at + 700]]) for at in range(0, 5000, 700)
    )
    events = split_events(buffer)
    ((layout, chosen),) = group_rows(buffer, events, FDE).groups()
    table = parse_table_map(buffer[: int(events.size[layout])], FDE)
    batches = list(decode_rows(buffer, events, chosen, table, FDE, 1000))
    assert len(batches) > 5
    assert [value for batch in batches for value in batch.after[0].to_pylist()] == list(range(5000))
    assert [row for batch in batches for row in batch.row.tolist()] == [i % 700 for i in range(5000)]


def test_a_dump_shows_the_first_rows_of_an_event_and_counts_the_others() -> None:
    buffer = MAGIC + FORMAT + wide_nulls(1017, MIB)
    with bounded(mib=BATCH_MIB, cpu_seconds=20):
        last = list(dump_events(buffer))[-1]
    assert len(last["rows"]) == VALUES_MAX // 1017
    assert len(last["rows"]) + last["rows_left_out"] == MIB // 128


def test_json_that_multiplies_names_its_event() -> None:
    document = b"\0\0\4\0"
    for _ in range(90):
        document = struct.pack("<HHBHBH", 2, 10 + len(document), 2, 10, 2, 10) + document
    value = b"\2" + document
    buffer = table_map([(C.JSON, b"\4")]) + rows(30, 1, [image([struct.pack("<I", len(value)) + value])])
    with bounded(mib=8, cpu_seconds=1), pytest.raises(BadEvent, match=r"WRITE_ROWS_V2.*share their bytes"):
        list(decoded(buffer))


def _hostile(choice: random.Random) -> bytes:
    """A table of any shape, and rows that take as little as its server could write, or random bytes."""
    shapes = [
        (C.LONGLONG, b"", b"\0" * 8),
        (C.STRING, bytes([C.STRING, 255]), b"\0"),
        (C.VARCHAR, struct.pack("<H", 60_000), b"\0\0"),
        (C.NEWDECIMAL, bytes([65, 30]), b"\x80" + b"\0" * 29),
        (C.NEWDECIMAL, bytes([30, 4]), b"\x80" + b"\0" * 13),
        (C.JSON, b"\4", struct.pack("<I", 5) + b"\2\0\0\4\0"),
        (C.BLOB, b"\4", struct.pack("<I", 0)),
        (C.BIT, b"\0\x08", b"\0" * 8),
    ]
    columns = [choice.choice(shapes) for _ in range(choice.choice((1, 8, 250, 1017)))]
    charset = tlv(2, packed(choice.choice((8, 33, 63))))
    share = choice.choice((0.0, 0.5, 1.0))
    row = image([None if choice.random() < share else value for _, _, value in columns])
    if choice.random() < 0.3:
        row = choice.randbytes(len(row))
    count = max(1, choice.randrange(1, MIB) // len(row))
    return table_map([(kind, meta) for kind, meta, _ in columns], metadata=charset) + rows(
        30, len(columns), [row] * count
    )


def test_random_tables_and_rows_stay_within_their_bounds() -> None:
    choice = random.Random(chosen_seed())
    list(decoded(padded(3, 100)))
    for _ in range(scaled(30)):
        buffer = _hostile(choice)
        with bounded(mib=BATCH_MIB, cpu_seconds=20):
            try:
                for batch in decoded(buffer):
                    assert len(batch)
                    del batch
            except BadInput as error:
                assert "offset" in str(error)
