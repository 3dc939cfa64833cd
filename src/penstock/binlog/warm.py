"""Compiles every kernel of the decoder once, so that the processes that start next load them from the cache on disk."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

from penstock.binlog.bodies import CHECKSUM_CRC32, FormatDescription
from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import CHECKSUM_BYTES, HEADER_BYTES, EventType, Flavour
from penstock.binlog.types import ColumnType as C

_FDE = FormatDescription("", Flavour.MARIADB, CHECKSUM_CRC32, bytes(18) + b"\x08")
# (type, meta, digits of a second of an old type, the bytes of a value): one column for each kernel and each type of it.
_COLUMNS: tuple[tuple[int, bytes, int, bytes], ...] = (
    (C.TINY, b"", 0, b"\1"),
    (C.SHORT, b"", 0, b"\1\0"),
    (C.LONG, b"", 0, b"\1\0\0\0"),
    (C.LONGLONG, b"", 0, b"\1" + bytes(7)),
    (C.VARCHAR, b"\x0a\0", 0, b"\1a"),
    (C.VARCHAR, b"\x0a\0", 0, b"\1b"),
    (C.NEWDECIMAL, bytes([65, 0]), 0, b"\x80" + bytes(28)),
    (C.NEWDECIMAL, bytes([9, 0]), 0, b"\x80" + bytes(3)),
    (C.BIT, b"\1\0", 0, b"\1"),
    (C.YEAR, b"", 0, b"\1"),
    (C.TIMESTAMP2, b"\0", 0, bytes(4)),
    (C.DATETIME2, b"\0", 0, b"\x80" + bytes(4)),
    (C.TIME2, b"\0", 0, b"\x80" + bytes(2)),
    (C.TIMESTAMP, b"", 0, bytes(4)),
    (C.DATETIME, b"", 0, bytes(8)),
    (C.TIME, b"", 0, bytes(3)),
    (C.DATETIME, b"", 6, bytes(8)),
    (C.TIME, b"", 1, b"\1\xcc\xdf\x60"),
    (C.STRING, bytes([C.STRING, 4]), 0, b"\1\1"),
    (C.JSON, b"\4", 0, b"\2\0\0\0\4\1"),
)


def warm_kernels() -> int:
    """Decodes one row with a column of each kind, which takes seconds the first time. Returns the rows decoded: 1."""
    metas = b"".join(meta for _, meta, _, _ in _COLUMNS)
    bitmap_bytes = (len(_COLUMNS) + 7) // 8
    layout = bytes(6) + b"\1\0\1s\0\1t\0" + bytes([len(_COLUMNS), *(kind for kind, _, _, _ in _COLUMNS), len(metas)])
    layout += metas + b"\xff" * bitmap_bytes + b"\2\3\x2d\1\x08"  # charset utf8mb4, of the second text column latin1
    row = bytes(bitmap_bytes) + b"".join(value for _, _, _, value in _COLUMNS)
    buffer = _event(EventType.TABLE_MAP, layout)
    rows = bytes(6) + b"\1\0" + bytes([len(_COLUMNS)]) + b"\xff" * bitmap_bytes + row
    buffer += _event(EventType.WRITE_ROWS_V1, rows)
    events = split_events(buffer)
    verify_checksums(buffer, events)
    ((map_event, chosen),) = group_rows(buffer, events, _FDE).groups()
    table = parse_table_map(buffer[: int(events.size[map_event])], _FDE)
    columns = tuple(
        replace(column, length=digits or column.length, form="inet4" if column.type == C.STRING else None)
        for column, (_, _, digits, _) in zip(table.columns, _COLUMNS, strict=True)
    )
    return sum(map(len, decode_rows(buffer, events, chosen, replace(table, columns=columns), _FDE)))


def _event(kind: int, body: bytes) -> bytes:
    raw = struct.pack("<IBIIIH", 0, kind, 1, HEADER_BYTES + len(body) + CHECKSUM_BYTES, 0, 0) + body
    return raw + struct.pack("<I", zlib.crc32(raw))
