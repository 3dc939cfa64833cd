"""Compiles every kernel of the decoder once, so that the processes that start next load them from the cache on disk."""

from __future__ import annotations

import struct
import zlib

from penstock.binlog.bodies import CHECKSUM_CRC32, FormatDescription
from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import CHECKSUM_BYTES, HEADER_BYTES, EventType, Flavour
from penstock.binlog.types import ColumnType as C

_FDE = FormatDescription("", Flavour.MARIADB, CHECKSUM_CRC32, bytes(18) + b"\x08")
_DECIMAL_65 = b"\x80" + bytes(28)


def warm_kernels() -> int:
    """Decodes one row with a column of each kind, which takes seconds the first time. Returns the rows decoded: 1."""
    columns = ((C.LONG, b""), (C.VARCHAR, b"\x0a\0"), (C.VARCHAR, b"\x0a\0"), (C.NEWDECIMAL, bytes([65, 0])))
    metas = b"".join(meta for _, meta in columns)
    layout = bytes(6) + b"\1\0\1s\0\1t\0" + bytes([len(columns), *(kind for kind, _ in columns), len(metas)]) + metas
    layout += b"\x0f" + b"\2\3\x2d\1\x08"  # all nullable; charset utf8mb4, of the second text column latin1
    row = b"\0" + struct.pack("<i", 1) + b"\1a" + b"\1b" + _DECIMAL_65
    buffer = _event(EventType.TABLE_MAP, layout)
    buffer += _event(EventType.WRITE_ROWS_V1, bytes(6) + b"\1\0" + bytes([len(columns), 0x0F]) + row)
    events = split_events(buffer)
    verify_checksums(buffer, events)
    ((map_event, chosen),) = group_rows(buffer, events, _FDE).groups()
    table = parse_table_map(buffer[: int(events.size[map_event])], _FDE)
    return sum(map(len, decode_rows(buffer, events, chosen, table, _FDE)))


def _event(kind: int, body: bytes) -> bytes:
    raw = struct.pack("<IBIIIH", 0, kind, 1, HEADER_BYTES + len(body) + CHECKSUM_BYTES, 0, 0) + body
    return raw + struct.pack("<I", zlib.crc32(raw))
