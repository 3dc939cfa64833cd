"""Compiles every kernel once, so that the cache on disk is there before several processes ask for it at the same time."""

from __future__ import annotations

import struct
import zlib

from penstock.binlog.bodies import CHECKSUM_CRC32, FormatDescription
from penstock.binlog.events import split_events, verify_checksums
from penstock.binlog.rows import decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import EventType, Flavour

_FDE = FormatDescription("", Flavour.MARIADB, CHECKSUM_CRC32, bytes(18) + b"\x08")
_DECIMAL_65 = b"\x80" + bytes(28)


def warm_kernels() -> int:
    """Decodes one row with a column of each kind; seconds the first time on a machine. Rows decoded, for a sanity check."""
    columns = ((C.LONG, b""), (C.VARCHAR, b"\x0a\0"), (C.VARCHAR, b"\x0a\0"), (C.NEWDECIMAL, bytes([65, 0])))
    metas = b"".join(meta for _, meta in columns)
    layout = bytes(6) + b"\1\0\1s\0\1t\0" + bytes([len(columns), *(kind for kind, _ in columns), len(metas)]) + metas
    layout += b"\x0f" + b"\2\3\x2d\1\x08"  # nullable; charsets: utf8mb4, the second one latin1
    row = b"\0" + struct.pack("<i", 1) + b"\1a" + b"\1b" + _DECIMAL_65
    buffer = _event(EventType.TABLE_MAP, layout)
    buffer += _event(EventType.WRITE_ROWS_V1, bytes(6) + b"\1\0" + bytes([len(columns), 0x0F]) + row)
    events = split_events(buffer)
    verify_checksums(buffer, events)
    ((map_event, chosen),) = group_rows(buffer, events, _FDE).groups()
    table = parse_table_map(buffer[: int(events.size[map_event])], _FDE)
    return len(decode_rows(buffer, events, chosen, table, _FDE))


def _event(kind: int, body: bytes) -> bytes:
    raw = struct.pack("<IBIIIH", 0, kind, 1, 19 + len(body) + 4, 0, 0) + body
    return raw + struct.pack("<I", zlib.crc32(raw))
