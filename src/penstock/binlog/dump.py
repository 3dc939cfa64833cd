"""A binlog file's bytes → one dict per event that JSON can hold, with decoded rows: for people to look at.

Columns without a name in the table map are called `@1`, `@2`, …. Values without a known charset are text where they are
UTF-8, else hexadecimal. Events are given up to the first one that cannot be read; then its error is raised. Of an event
with more than `VALUES_MAX` values the first rows are shown, and `rows_left_out` counts the others. The events inside a
compressed transaction follow it, with its offset and header; other compressed events are shown as what they hold. JSON
that was logged only as its difference to a document that was not is shown as that difference.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.binlog import bodies
from penstock.binlog.errors import BadEvent, type_name
from penstock.binlog.events import Events, split_events, verify_checksums
from penstock.binlog.expand import Expanded, expand_events
from penstock.binlog.rows import DecodedRows, decode_rows, group_rows
from penstock.binlog.table_map import MapColumn, TableMap, parse_table_map
from penstock.binlog.types import MAGIC, MAGIC_ENCRYPTED, REFUSED_TYPES, ROWS_TYPES, Flavour
from penstock.binlog.types import ColumnType as C
from penstock.binlog.types import EventType as E
from penstock.errors import NotSupported

VALUES_MAX = 1 << 17  # in the rows of one event: as Python objects they take a hundred bytes each

_CHUNK_BYTES = 32 << 20  # of events that are expanded and decoded together
_STARTS = (E.GTID, E.ANONYMOUS_GTID, E.GTID_TAGGED, E.MARIADB_GTID, E.QUERY)
Bytes = bytes | memoryview
_OPS = {ord("I"): "insert", ord("U"): "update", ord("D"): "delete"}


def dump_events(data: Bytes) -> Iterator[dict[str, Any]]:
    """The events of a binlog file. Raises `BadEvent` or `NotSupported` where one cannot be read, and for a file that is
    not a binlog, is encrypted, or ends inside an event."""
    if data[:4] == MAGIC_ENCRYPTED:
        raise NotSupported("an encrypted binlog file", hint="set binlog_encryption=OFF on the server")
    if data[:4] != MAGIC:
        raise BadEvent("not a binlog file: it does not start with its magic number")
    events = split_events(data, start=4, whole=False)
    starts = np.flatnonzero((events.type == E.FORMAT_DESCRIPTION) | (events.type == E.START_V3))
    if len(events) and (not len(starts) or starts[0] != 0):
        raise BadEvent("the file does not start with a format description", offset=4, event_type=int(events.type[0]))
    for first, last in zip(starts, [*starts[1:], len(events)], strict=False):
        yield from _segment(data, _part(events, int(first), int(last)))
    if events.consumed != len(data):
        raise BadEvent("the file ends inside an event; a server may still write it", offset=events.consumed)


def _part(events: Events, first: int, last: int) -> Events:
    """Events `first` to `last`."""
    which = slice(first, last)
    if last == first:
        return events.some(which)
    end = int(events.offset[last - 1]) + int(events.size[last - 1])
    return events.some(which, end)


def _segment(data: Bytes, events: Events) -> Iterator[dict[str, Any]]:
    try:
        fde = bodies.parse_format_description(_event(data, events, 0))
    except BadEvent as error:
        raise error.at(int(events.offset[0])) from None
    damaged: BadEvent | None = None
    if fde.checksum == bodies.CHECKSUM_CRC32:
        try:
            verify_checksums(data, events)
        except BadEvent as error:
            damaged = error
            events = _part(events, 0, int(np.searchsorted(events.offset, error.offset)))
    refused = np.flatnonzero(np.isin(events.type, list(REFUSED_TYPES)))
    readable = int(refused[0]) if len(refused) else len(events)
    for first, last in _chunks(events, readable):
        yield from _chunk(data, _part(events, first, last), fde)
    if len(refused):
        bodies.refuse_unsupported(int(events.type[readable]), int(events.offset[readable]))
    if damaged is not None:
        raise damaged


def _chunks(events: Events, count: int) -> Iterator[tuple[int, int]]:
    """The first `count` events in parts of about `_CHUNK_BYTES`. No part begins between a table map and its rows."""
    first = 0
    for start in np.flatnonzero(np.isin(events.type[:count], _STARTS)).tolist():
        if events.offset[start] - events.offset[first] > _CHUNK_BYTES:
            yield first, start
            first = start
    if first < count:
        yield first, count


def _chunk(data: Bytes, outer: Events, fde: bodies.FormatDescription) -> Iterator[dict[str, Any]]:
    expanded = expand_events(data, outer, fde)
    rows = _Rows(expanded, outer, fde)
    shown = -1  # the last event of the file that was given out
    for j, i in enumerate(expanded.origin.tolist()):
        kind = int(outer.type[i])
        if kind == E.TRANSACTION_PAYLOAD and shown != i:
            yield _header(outer, i, kind)
        shown = i
        if kind == E.TRANSACTION_PAYLOAD:
            kind = int(expanded.events.type[j])
        value = _header(outer, i, kind)
        try:
            value |= _body(int(expanded.events.type[j]), _event(expanded.buffer, expanded.events, j), fde)
        except BadEvent as error:
            raise error.at(int(outer.offset[i]), event_type=kind) from None
        if int(expanded.events.type[j]) in ROWS_TYPES:
            value |= rows.of(j)
        yield value


def _header(events: Events, i: int, kind: int) -> dict[str, Any]:
    return {
        "offset": int(events.offset[i]),
        "type": type_name(kind),
        "timestamp": int(events.timestamp[i]),
        "server_id": int(events.server_id[i]),
        "size": int(events.size[i]),
        "end_pos": int(events.end_pos[i]),
        "flags": int(events.flags[i]),
    }


def _event(data: Bytes | npt.NDArray[np.uint8], events: Events, i: int) -> bytes:
    start = int(events.offset[i])
    return bytes(data[start : start + int(events.size[i])])


def _body(kind: int, event: bytes, fde: bodies.FormatDescription) -> dict[str, Any]:
    if kind == E.FORMAT_DESCRIPTION:
        flavour = "mariadb" if fde.flavour is Flavour.MARIADB else "mysql"
        checksum = "crc32" if fde.checksum else "none"
        return {"server_version": fde.server_version, "flavour": flavour, "checksum": checksum}
    if kind == E.QUERY:
        query = bodies.parse_query(event, fde)
        return {"schema": query.schema, "sql": query.sql}
    if kind in (E.GTID, E.ANONYMOUS_GTID, E.GTID_TAGGED):
        return {"gtid": str(bodies.parse_gtid(event, fde))}
    if kind == E.MARIADB_GTID:
        gtid = bodies.parse_mariadb_gtid(event, fde)
        return {"gtid": str(gtid), "standalone": gtid.standalone, "ddl": gtid.ddl}
    if kind == E.XID:
        return {"xid": bodies.parse_xid(event, fde)}
    if kind == E.XA_PREPARE:
        prepared = bodies.parse_xa_prepare(event, fde)
        return {"xa": str(prepared.xid), "one_phase": prepared.one_phase}
    if kind in (E.ROWS_QUERY, E.ANNOTATE_ROWS):
        return {"sql": bodies.parse_rows_query(event, fde)}
    if kind == E.ROTATE:
        rotate = bodies.parse_rotate(event, fde)
        return {"next_file": rotate.file, "next_position": rotate.position}
    if kind == E.TABLE_MAP:
        table = parse_table_map(event, fde)
        return {"table_id": table.table_id, "schema": table.schema, "table": table.table, "columns": len(table.columns)}
    return {}


class _Rows:
    """The rows of each event. An event is decoded when it is asked for, so that only one is in memory."""

    def __init__(self, expanded: Expanded, outer: Events, fde: bodies.FormatDescription) -> None:
        self._data = expanded.buffer
        self._events = expanded.events
        self._outer_offset = outer.offset[expanded.origin]
        self._fde = fde
        self._layout = np.empty(0, np.int64)
        if np.any(np.isin(self._events.type, list(ROWS_TYPES))):
            try:
                self._layout = group_rows(self._data, self._events, fde).layout
            except BadEvent as error:
                raise self._located(error) from None
        self._table: tuple[int, TableMap] | None = None  # of the last event, with the event of its map

    def _located(self, error: BadEvent) -> BadEvent:
        """The same error at the place in the file, which is another where events are compressed."""
        i = int(np.searchsorted(self._events.offset, error.offset, side="right")) - 1
        return error.at(int(self._outer_offset[i]))

    def of(self, i: int) -> dict[str, Any]:
        layout = int(self._layout[i])
        if self._table is None or self._table[0] != layout:
            self._table = layout, parse_table_map(_event(self._data, self._events, layout), self._fde)
        table = self._table[1]
        shown: list[dict[str, Any]] = []
        rows_max = max(1, VALUES_MAX // max(1, len(table.columns)))
        left_out = 0
        try:
            chosen = np.array([i])
            for rows in decode_rows(self._data, self._events, chosen, table, self._fde, describe_partial_json=True):
                take = min(len(rows), rows_max - len(shown))
                shown += _rows(table, rows, 0, take)
                left_out += len(rows) - take
        except BadEvent as error:
            raise self._located(error) from None
        found = {"schema": table.schema, "table": table.table, "rows": shown}
        return found | {"rows_left_out": left_out} if left_out else found


def _rows(table: TableMap, rows: DecodedRows, first: int, last: int) -> list[dict[str, Any]]:
    """The changes with their images; a column that the server left out of an image is not in it."""
    part = rows.slice(first, last)
    names = [column.name or f"@{i + 1}" for i, column in enumerate(table.columns)]
    shows = list(map(formatter, table.columns))
    images = {}
    for name, columns, present in (
        ("before", part.before, part.present_before),
        ("after", part.after, part.present_after),
    ):
        shown = [
            [None if value is None else show(value) for value in column.to_pylist()]
            for column, show in zip(columns, shows, strict=True)
        ]
        images[name] = [dict(zip(names, values, strict=True)) for values in zip(*shown, strict=True)]
        if present is not None:
            for c, column_name in enumerate(names):
                for k in np.flatnonzero(~present.column(c)).tolist():
                    del images[name][k][column_name]
    wanted = {"insert": ("after",), "delete": ("before",), "update": ("before", "after")}
    ops = [_OPS[op] for op in part.op.tolist()]
    return [{"op": op, **{name: images[name][k] for name in wanted[op]}} for k, op in enumerate(ops)]


def formatter(column: MapColumn) -> Callable[[Any], Any]:
    """A function that shows a value of this column: temporal values and decimals as the server prints them."""
    kind, fsp = column.type, column.length
    if kind in (C.DATE, C.NEWDATE):
        return lambda v: f"{v >> 9:04}-{v >> 5 & 15:02}-{v & 31:02}"
    if kind in (C.TIME, C.TIME2):
        return lambda v: _time(v, fsp if kind == C.TIME2 else 0)
    if kind in (C.DATETIME, C.DATETIME2):
        return lambda v: _datetime(v, fsp if kind == C.DATETIME2 else 0)
    if kind in (C.TIMESTAMP, C.TIMESTAMP2):
        return lambda v: _timestamp(v, fsp if kind == C.TIMESTAMP2 else 0)
    if kind == C.NEWDECIMAL:
        return lambda v: v if isinstance(v, str) else f"{v:f}"
    if kind == C.ENUM and column.elements is not None:
        elements = ("", *column.elements)
        return lambda v: elements[v] if v < len(elements) else v
    if kind == C.SET and column.elements is not None:
        names = column.elements
        return lambda v: ",".join(name for i, name in enumerate(names) if v >> i & 1)
    return _bytes_or_same


def _bytes_or_same(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return "0x" + value.hex()


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06}"[: fsp + 1] if fsp else ""


def _time(value: int, fsp: int) -> str:
    sign = "-" if value < 0 else ""
    seconds, micros = divmod(abs(value), 1_000_000)
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{_fraction(micros, fsp)}"


def _datetime(value: int, fsp: int) -> str:
    whole, micros = value >> 24, value & 0xFFFFFF
    year, month = divmod(whole >> 22, 13)
    day = f"{year:04}-{month:02}-{whole >> 17 & 31:02}"
    return f"{day} {whole >> 12 & 31:02}:{whole >> 6 & 63:02}:{whole & 63:02}{_fraction(micros, fsp)}"


def _timestamp(value: int, fsp: int) -> str:
    if value == 0:
        return "0000-00-00 00:00:00" + _fraction(0, fsp)
    seconds, micros = divmod(value, 1_000_000)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}{_fraction(micros, fsp)}"
