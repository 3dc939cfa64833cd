"""Log entries → changes of tables, in columns.

Entries are decoded in groups of up to `GROUP_BYTES_MAX`, because small batches cost several times as much per row; a
group never reaches across a DDL. Rows come by table, each table in seq order. A `SchemaChange` comes after all rows
that precede it in the log, and before all that follow. No Python runs per event or per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.bodies import FormatDescription, parse_format_description
from penstock.binlog.events import Events, split_events
from penstock.binlog.rows import DecodedRows, decode_rows, group_rows
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import EventType
from penstock.entries.format import EntryHeader, Kind, ParsedEntry, parse_entry
from penstock.errors import BadInput, NotSupported
from penstock.log import Entry
from penstock.log.position import Position, Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch, SchemaChange
from penstock.schema.ddl import SYSTEM_SCHEMAS
from penstock.schema.from_table_map import complete_table_map
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaAt, SchemaView

__all__ = ["GROUP_BYTES_MAX", "SchemaAt", "SchemaView", "decode_entries"]

GROUP_BYTES_MAX = 32 << 20  # of events that are decoded together; in columns they take about five times as much

Wanted = Callable[[str, str], bool]


def decode_entries(
    entries: Iterable[Entry], schemas: SchemaView, wanted: Wanted | None = None
) -> Iterator[ChangeBatch | SchemaChange]:
    """The changes of `entries`, which are in the order of the log.

    `schemas` must know every version of the tables that the entries change. With `wanted`, rows of other tables are not
    decoded; without it only those of the server's own schemas are left out.
    """
    group = _EntryGroup(schemas, wanted)
    for entry in entries:
        if not len(entry.data):
            continue  # a frame with state only
        parsed = parse_entry(entry.data)
        is_ddl = _has_ddl(parsed.transactions["kind"], entry.position)
        if is_ddl or not group.takes(parsed):
            yield from group.decode()
            group = _EntryGroup(schemas, wanted)
        if is_ddl:
            yield from _schema_changes(entry.position, parsed, schemas, wanted)
        group.add(entry.position, parsed)
    yield from group.decode()


def _has_ddl(kinds: npt.NDArray[np.uint8], position: Position) -> bool:
    """Whether a DDL is among the transactions. Raises for kinds that this version does not read."""
    highest = int(kinds.max(initial=0))
    if highest == 0:
        return False  # nearly always: rows only
    if np.any(kinds == Kind.CHUNK):
        raise NotSupported(f"entry {position} holds a chunk of an initial load, which this version does not read")
    if highest > Kind.VOID:
        raise BadInput(f"entry {position} holds transactions of an unknown kind {highest}")
    return bool(np.any(kinds == Kind.DDL))


def _schema_changes(
    position: Position, parsed: ParsedEntry, schemas: SchemaView, wanted: Wanted | None
) -> Iterator[SchemaChange]:
    """The table versions that begin with this DDL. Their seq is that of the statement's event."""
    transaction = parsed.transactions[parsed.transactions["kind"] == Kind.DDL][0]
    events = split_events(parsed.events)
    statements = np.flatnonzero(events.type == EventType.QUERY)
    event = int(statements[0]) if len(statements) else int(transaction["first_event"])
    seq = Seq(position.ledger_id, position.entry_id, event, 0).to_bytes()
    for table in schemas.changed_at(position):
        if wanted is None or not table.table or wanted(table.schema, table.table):
            yield SchemaChange(table, seq, int(transaction["commit_ts"]))


@dataclass(frozen=True, slots=True)
class _Origins:
    """For each event of a group: its entry, its ordinal in the entry, and the commit_ts of its transaction."""

    ledger: npt.NDArray[np.uint64]
    entry: npt.NDArray[np.uint64]
    ordinal: npt.NDArray[np.uint32]
    commit_ts: npt.NDArray[np.uint64]


class _EntryGroup:
    """Entries that are decoded together: of one format description, without a schema change between them."""

    def __init__(self, schemas: SchemaView, wanted: Wanted | None) -> None:
        self._schemas = schemas
        self._wanted = wanted
        self._entries: list[tuple[Position, ParsedEntry]] = []
        self._bytes = 0

    def takes(self, parsed: ParsedEntry) -> bool:
        if not self._entries:
            return True
        return self._bytes + len(parsed.events) <= GROUP_BYTES_MAX and _same_format(
            self._entries[0][1].header, parsed.header
        )

    def add(self, position: Position, parsed: ParsedEntry) -> None:
        self._entries.append((position, parsed))
        self._bytes += len(parsed.events)

    def decode(self) -> Iterator[ChangeBatch]:
        """A batch for each table version, ordered by its first row."""
        if not self._bytes:
            return
        header = self._entries[0][1].header
        fde = replace(parse_format_description(header.fde), checksum=int(header.checksum))
        buffer = self._entries[0][1].events
        if len(self._entries) > 1:
            buffer = np.concatenate([parsed.events for _, parsed in self._entries])
        events = split_events(buffer)
        scope, origins, counts = self._origins(events)
        layout = group_rows(buffer, events, fde, scope)
        layout.layout[~counts] = -1
        parts: dict[tuple[str, str, int], list[tuple[TableSchema, DecodedRows]]] = {}
        for map_event, chosen in layout.groups():
            decoded = self._decode_layout(buffer, events, fde, map_event, chosen, scope)
            if decoded is not None and len(decoded[1]):
                table = decoded[
                    0
                ]  # one table may have two versions here: a drifted schema gets a new one without a DDL
                parts.setdefault((table.schema, table.table, table.version), []).append(decoded)
        for found in parts.values():
            yield _batch(found[0][0], _merged([rows for _, rows in found]), origins)

    def _decode_layout(  # noqa: PLR0917
        self,
        buffer: npt.NDArray[np.uint8],
        events: Events,
        fde: FormatDescription,
        map_event: int,
        chosen: npt.NDArray[np.int64],
        scope: npt.NDArray[np.int64],
    ) -> tuple[TableSchema, DecodedRows] | None:
        start = int(events.offset[map_event])
        table_map = parse_table_map(buffer[start : start + int(events.size[map_event])].tobytes(), fde)
        if table_map.schema.lower() in SYSTEM_SCHEMAS:
            return None
        if self._wanted is not None and not self._wanted(table_map.schema, table_map.table):
            return None
        position = self._entries[int(scope[chosen[0]])][0]
        table = self._schemas.at(table_map.schema, table_map.table, position)
        return table, decode_rows(buffer, events, chosen, complete_table_map(table_map, table), fde)

    def _origins(self, events: Events) -> tuple[npt.NDArray[np.int64], _Origins, npt.NDArray[np.bool_]]:
        """For each event: the index of its entry, its origin, and whether its rows count."""
        starts = np.cumsum([0, *(len(parsed.events) for _, parsed in self._entries)])
        inner = starts[1:-1][starts[1:-1] < starts[-1]]
        if not np.array_equal(events.offset[np.searchsorted(events.offset, inner)], inner):
            raise BadInput(f"the events of an entry after {self._entries[0][0]} do not end where the entry does")
        scope = np.searchsorted(starts, events.offset, side="right") - 1
        positions = np.array([position for position, _ in self._entries], np.uint64)
        first = np.searchsorted(events.offset, starts[:-1])
        offsets = np.concatenate(
            [parsed.transactions["offset"] + start for start, (_, parsed) in zip(starts, self._entries, strict=False)]
        )
        ends = offsets + np.concatenate([parsed.transactions["length"] for _, parsed in self._entries])
        commit_ts = np.concatenate([parsed.transactions["commit_ts"] for _, parsed in self._entries])
        kinds = np.concatenate([parsed.transactions["kind"] for _, parsed in self._entries])
        if not len(offsets):
            raise BadInput(f"entry {self._entries[0][0]} has events, but no transaction")
        transaction = np.searchsorted(offsets, events.offset, side="right") - 1
        if np.any(transaction < 0) or np.any(events.offset >= ends[transaction]):
            raise BadInput(f"entry {self._entries[0][0]} or one after it has events outside its transactions")
        counts = np.isin(kinds, (Kind.ROWS, Kind.DDL))[transaction]
        origins = _Origins(
            positions[scope, 0],
            positions[scope, 1],
            (np.arange(len(events)) - first[scope]).astype(np.uint32),
            commit_ts[transaction],
        )
        return scope, origins, counts


def _same_format(a: EntryHeader, b: EntryHeader) -> bool:
    return a.fde == b.fde and a.checksum == b.checksum and a.flavour == b.flavour


def _merged(parts: list[DecodedRows]) -> DecodedRows:
    """The rows of one table that were logged with different table maps, back in the order of the log."""
    if len(parts) == 1:
        return parts[0]
    event = np.concatenate([part.event for part in parts])
    row = np.concatenate([part.row for part in parts])
    order = np.lexsort((row, event))
    indexes = pa.array(order)

    def joined(columns: list[list[pa.Array[Any]]]) -> list[pa.Array[Any]]:
        return [pa.concat_arrays(list(pieces)).take(indexes) for pieces in zip(*columns, strict=True)]

    return DecodedRows(
        np.concatenate([part.op for part in parts])[order],
        event[order],
        row[order],
        joined([part.before for part in parts]),
        joined([part.after for part in parts]),
    )


def _batch(table: TableSchema, rows: DecodedRows, origins: _Origins) -> ChangeBatch:
    seq = np.empty(len(rows), SEQ_DTYPE)
    seq["ledger"] = origins.ledger[rows.event]
    seq["entry"] = origins.entry[rows.event]
    seq["event"] = origins.ordinal[rows.event]
    seq["row"] = rows.row
    return ChangeBatch(table, rows.op, seq, origins.commit_ts[rows.event], rows.before, rows.after)
