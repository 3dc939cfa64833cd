"""Log entries → changes of tables, in columns.

Entries are decoded in groups of up to `GROUP_BYTES_MAX`, because small batches cost several times as much per row; a
group never reaches across a DDL. Rows come by table, each table in seq order, in batches of about `BATCH_BYTES_MAX`: a
batch is never larger because its rows took little space in the log. A `SchemaChange` comes after all rows that precede
it in the log, and before all that follow. No Python runs per event or per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import FormatDescription, parse_format_description
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import Events, split_events
from penstock.binlog.rows import BATCH_BYTES_MAX, DecodedRows, decode_rows, group_rows
from penstock.binlog.table_map import TableMap, parse_table_map
from penstock.binlog.types import EventType
from penstock.entries.format import EntryHeader, Kind, ParsedEntry, parse_entry
from penstock.entries.merge import in_log_order
from penstock.errors import BadInput, NotSupported
from penstock.log import Entry
from penstock.log.position import Position, Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch, SchemaChange
from penstock.schema.ddl import SYSTEM_SCHEMAS
from penstock.schema.from_table_map import complete_table_map
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaAt, SchemaView

__all__ = ["GROUP_BYTES_MAX", "SchemaAt", "SchemaView", "decode_entries"]

GROUP_BYTES_MAX = 32 << 20  # of events that are decoded together

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


class _Layout(NamedTuple):
    """The row events of a group that have the same table map."""

    table_map: TableMap
    events: npt.NDArray[np.int64]


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
        """Batches of one table version after the other, ordered by their first row; each table's in seq order."""
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
        tables: dict[tuple[str, str, int], tuple[TableSchema, list[_Layout]]] = {}
        for map_event, chosen in layout.groups():
            found = self._layout(buffer, events, fde, map_event, chosen, scope)
            if found is not None:
                table = found[0]  # one table may have two versions here: a drifted schema gets a new one without a DDL
                key = (table.schema, table.table, table.version)
                tables.setdefault(key, (table, []))[1].append(found[1])
        for table, layouts in tables.values():
            share = BATCH_BYTES_MAX // len(layouts)
            try:
                parts = [decode_rows(buffer, events, one.events, one.table_map, fde, share) for one in layouts]
                for rows in in_log_order(parts):
                    yield _batch(table, rows, origins)
            except BadEvent as error:
                raise self._located(error, events, scope) from None

    def _layout(  # noqa: PLR0917
        self,
        buffer: npt.NDArray[np.uint8],
        events: Events,
        fde: FormatDescription,
        map_event: int,
        chosen: npt.NDArray[np.int64],
        scope: npt.NDArray[np.int64],
    ) -> tuple[TableSchema, _Layout] | None:
        start = int(events.offset[map_event])
        table_map = parse_table_map(buffer[start : start + int(events.size[map_event])].tobytes(), fde)
        if table_map.schema.lower() in SYSTEM_SCHEMAS:
            return None
        if self._wanted is not None and not self._wanted(table_map.schema, table_map.table):
            return None
        position = self._entries[int(scope[chosen[0]])][0]
        table = self._schemas.at(table_map.schema, table_map.table, position)
        return table, _Layout(complete_table_map(table_map, table), chosen)

    def _located(self, error: BadEvent, events: Events, scope: npt.NDArray[np.int64]) -> BadEvent:
        """The same error, with the place in the source instead of the one in the group's buffer."""
        event = int(np.searchsorted(events.offset, error.offset, side="right")) - 1
        position, parsed = self._entries[int(scope[event])]
        start = int(events.offset[np.searchsorted(scope, scope[event])])
        transactions = parsed.transactions
        within = error.offset - start
        at = transactions[max(0, int(np.searchsorted(transactions["offset"], within, side="right")) - 1)]
        file = parsed.header.files[int(at["file"])] if parsed.header.files else ""
        offset = int(at["start_pos"]) + within - int(at["offset"])
        return error.at(offset, file=f"log entry {position}, transaction at {file}:{int(at['start_pos'])}")

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


def _batch(table: TableSchema, rows: DecodedRows, origins: _Origins) -> ChangeBatch:
    seq = np.empty(len(rows), SEQ_DTYPE)
    seq["ledger"] = origins.ledger[rows.event]
    seq["entry"] = origins.entry[rows.event]
    seq["event"] = origins.ordinal[rows.event]
    seq["row"] = rows.row
    return ChangeBatch(table, rows.op, seq, origins.commit_ts[rows.event], rows.before, rows.after)
