"""What a real server logged of a table, decoded and printed as the server prints it: to be compared with its SELECT.

Nothing here shares code with the encoders: the printing is written from the forms of schema/changes.py.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.binlog.bodies import FormatDescription, parse_format_description
from penstock.binlog.events import Events, split_events, verify_checksums
from penstock.binlog.expand import expand_events
from penstock.binlog.rows import DecodedRows, decode_rows, group_rows
from penstock.binlog.table_map import MapColumn, TableMap, parse_table_map
from penstock.binlog.types import ColumnType as C
from tools.components.database import DatabaseServer

ABSENT = "absent"
INSERT, UPDATE, DELETE = ord("I"), ord("U"), ord("D")
_EPOCH = datetime.datetime(1970, 1, 1)

Image = dict[str, Any]


class Change(NamedTuple):
    op: int
    before: Image | None
    after: Image | None


def current_file(server: DatabaseServer) -> bytes:
    """The bytes of the server's newest binlog file."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        name: str = cursor.fetchone()[0]
    return (server.binlog_directory / name).read_bytes()


def changes(
    server: DatabaseServer,
    table: str,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    show: Callable[[MapColumn, Any], Any] | None = None,
) -> list[Change]:
    """All changes of a table in the server's newest binlog file. `known`: by column, what no table map says. `show`:
    what becomes of a value, other than `printed`."""
    data = current_file(server)
    outer = split_events(data, start=4, whole=False)
    fde = parse_format_description(data[4 : 4 + int(outer.size[0])])
    if fde.checksum:
        verify_checksums(data, outer)
    expanded = expand_events(data[: outer.consumed], outer, fde)
    found: list[tuple[int, int, Change]] = []
    for layout, chosen in group_rows(expanded.buffer, expanded.events, fde).groups():
        mapped = _table_map(expanded.buffer, expanded.events, layout, fde)
        if mapped.table == table:
            columns = tuple(dataclasses.replace(c, **(known or {}).get(str(c.name), {})) for c in mapped.columns)
            mapped = dataclasses.replace(mapped, columns=columns)
            for batch in decode_rows(expanded.buffer, expanded.events, chosen, mapped, fde):
                found += zip(
                    batch.event.tolist(), batch.row.tolist(), _changes(mapped, batch, show or printed), strict=True
                )
    return [change for _, _, change in sorted(found, key=lambda one: one[:2])]


def _table_map(buffer: Any, events: Events, i: int, fde: FormatDescription) -> TableMap:
    start = int(events.offset[i])
    return parse_table_map(buffer[start : start + int(events.size[i])].tobytes(), fde)


def _changes(table: TableMap, rows: DecodedRows, show: Callable[[MapColumn, Any], Any]) -> list[Change]:
    images = []
    for columns, presence in ((rows.before, rows.present_before), (rows.after, rows.present_after)):
        values = []
        for k, (column, array) in enumerate(zip(table.columns, columns, strict=True)):
            array.validate(full=True)
            there = [True] * len(rows) if presence is None else presence.column(k).tolist()
            shown = [None if value is None else show(column, value) for value in array.to_pylist()]
            values.append([one if present else ABSENT for one, present in zip(shown, there, strict=True)])
        names = [str(column.name) for column in table.columns]
        images.append([dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)])
    return [
        Change(op, None if op == INSERT else images[0][k], None if op == DELETE else images[1][k])
        for k, op in enumerate(rows.op.tolist())
    ]


def printed(column: MapColumn, value: Any) -> str | float:
    """A decoded value as text; floats as they are, binary in hexadecimal."""
    kind, fsp = column.type, column.length
    if isinstance(value, bytes):
        return value.hex().upper()
    if kind in (C.FLOAT, C.DOUBLE):
        return float(value)
    if kind == C.NEWDECIMAL:
        return value if isinstance(value, str) else f"{value:f}"
    if kind == C.YEAR:
        return f"{value:04}"
    if kind in (C.DATE, C.NEWDATE):
        return f"{value >> 9:04}-{value >> 5 & 15:02}-{value & 31:02}"
    if kind in (C.TIME, C.TIME2):
        seconds, micros = divmod(abs(value), 1_000_000)
        sign = "-" if value < 0 else ""
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" + _fraction(micros, fsp)
    if kind in (C.DATETIME, C.DATETIME2):
        whole, micros = value >> 24, value & 0xFFFFFF
        year, month = divmod(whole >> 22, 13)
        day = f"{year:04}-{month:02}-{whole >> 17 & 31:02}"
        return f"{day} {whole >> 12 & 31:02}:{whole >> 6 & 63:02}:{whole & 63:02}" + _fraction(micros, fsp)
    if kind in (C.TIMESTAMP, C.TIMESTAMP2):
        seconds, micros = divmod(value, 1_000_000)
        text = f"{_EPOCH + datetime.timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}" if value else "0000-00-00 00:00:00"
        return f"{text}{_fraction(micros, fsp)}"
    if kind == C.ENUM:
        assert column.elements is not None
        name: str = ("", *column.elements)[value]
        return name
    if kind == C.SET:
        assert column.elements is not None
        return ",".join(name for i, name in enumerate(column.elements) if value >> i & 1)
    return str(value)


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06}"[: fsp + 1] if fsp else ""
