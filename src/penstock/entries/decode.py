"""Log entries → changes of tables, in columns.

Entries are decoded in groups of up to `GROUP_BYTES_MAX`, because small batches cost several times as much per row; a
group never reaches across a DDL. Rows come by table, each table in seq order, in batches of about `BATCH_BYTES_MAX`: a
batch is never larger because its rows took little space in the log. A `SchemaChange` comes after all rows that precede
it in the log, and before all that follow. No Python runs per event or per row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.bodies import FormatDescription, parse_format_description, parse_query
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import Events, split_events
from penstock.binlog.rows import BATCH_BYTES_MAX, DecodedRows, count_rows, decode_rows, group_rows
from penstock.binlog.table_map import TableMap, parse_table_map
from penstock.binlog.types import EventType
from penstock.entries.chunk import read_chunk
from penstock.entries.format import EntryHeader, Kind, ParsedEntry, parse_entry
from penstock.entries.merge import in_log_order
from penstock.errors import BadInput, NotSupported
from penstock.log import Entry
from penstock.log.position import Position, Seq
from penstock.schema.catalog import SYSTEM_SCHEMAS
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch, SchemaChange
from penstock.schema.ddl.session import Statement
from penstock.schema.from_table_map import complete_table_map
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.view import SchemaAt, SchemaView

__all__ = [
    "GROUP_BYTES_MAX",
    "EntryGroup",
    "GroupRows",
    "SchemaAt",
    "SchemaView",
    "TableRows",
    "check_held",
    "decode_entries",
    "statement_of",
]

GROUP_BYTES_MAX = 32 << 20  # of events that are decoded together
_AFTER_ALL = Position((1 << 63) - 1, 0)

Wanted = Callable[[str, str], bool]


def decode_entries(
    entries: Iterable[Entry], schemas: SchemaView, wanted: Wanted | None = None, void: Collection[int] = ()
) -> Iterator[ChangeBatch | SchemaChange]:
    """The changes of `entries`, which are in the order of the log.

    `void`: the commit_ts of transactions that never happened although parts of them are in the log. These parts, held
    groups and void records are passed over.

    `schemas` must know every version of the tables that the entries change. With `wanted`, rows of other tables are not
    decoded; without it only those of the server's own schemas are left out.
    """
    follows = _without_system(wanted)
    group = EntryGroup(schemas, follows)
    for entry in entries:
        if not len(entry.data):
            continue  # a frame with state only
        parsed = _without_void(parse_entry(entry.data), void)
        if Kind.CHUNK in parsed.transactions["kind"]:
            yield from _changes(group)
            group = EntryGroup(schemas, follows)
            yield from _chunk(entry.position, parsed, schemas, follows)
            continue
        is_ddl = _has_ddl(parsed.transactions["kind"], entry.position)
        if is_ddl or not group.takes(parsed):
            yield from _changes(group)
            group = EntryGroup(schemas, follows)
        if is_ddl:
            yield from _schema_changes(entry.position, parsed, schemas, wanted)
        group.add(entry.position, parsed)
    yield from _changes(group)


def check_held(parsed: ParsedEntry, schemas: SchemaView, wanted: Wanted) -> None:
    """Reads the rows of a held entry as they will be read once its group commits, by the newest schemas. Raises as decoding
    them would."""
    transactions = parsed.transactions.copy()
    transactions["kind"][transactions["kind"] == Kind.HELD] = Kind.ROWS
    group = EntryGroup(schemas, _without_system(wanted))
    group.add(_AFTER_ALL, replace(parsed, transactions=transactions))
    for _ in _changes(group):
        pass


def _without_system(wanted: Wanted | None) -> Wanted:
    def follows(schema: str, table: str) -> bool:
        return schema.lower() not in SYSTEM_SCHEMAS and (wanted is None or wanted(schema, table))

    return follows


def _changes(group: EntryGroup) -> Iterator[ChangeBatch | SchemaChange]:
    """Batches of one table version after the other, ordered by their first row; each table's in seq order. In place of
    the rows of a parked table, a change of kind UNKNOWN."""
    rows = group.rows()
    if rows is None:
        return
    origins = rows.origins
    for table, first in rows.held.values():
        yield SchemaChange(table, origins.seq(first), int(origins.commit_ts[first]), table)
    for one in rows.tables:
        for part in rows.decode(one):
            yield _batch(one.table, part, origins)


def _chunk(
    position: Position, parsed: ParsedEntry, schemas: SchemaView, follows: Wanted
) -> Iterator[ChangeBatch | SchemaChange]:
    """The rows of a chunk, as inserts; in their place, a change of kind UNKNOWN where the table is parked."""
    chunk = read_chunk(parsed)
    if not follows(chunk.schema, chunk.table):
        return
    commit_ts = int(parsed.transactions["commit_ts"][0])
    known = schemas.find(chunk.schema, chunk.table, position)
    if known is not None and known.parked:
        seq = Seq(position.ledger_id, position.entry_id, 0, 0).to_bytes()
        yield SchemaChange(known, seq, commit_ts, known)
        return
    table = schemas.at(chunk.schema, chunk.table, position)
    if table.version != chunk.version or len(table.columns) != len(chunk.columns):
        raise BadInput(
            f"entry {position}: the chunk of {table.name} is of version {chunk.version}, not {table.version}"
        )
    count = len(chunk)
    seq_of = np.zeros(count, SEQ_DTYPE)
    seq_of["ledger"], seq_of["entry"] = position
    seq_of["row"] = np.arange(count)
    missing = {column.type: pa.nulls(count, column.type) for column in chunk.columns}
    yield ChangeBatch(
        table,
        np.full(count, OP_INSERT, np.uint8),
        seq_of,
        np.full(count, commit_ts, np.uint64),
        [missing[column.type] for column in chunk.columns],
        chunk.columns,
    )


def _without_void(parsed: ParsedEntry, void: Collection[int]) -> ParsedEntry:
    """The entry with the parts of void transactions marked as void; itself if it has none."""
    if not void or not np.isin(parsed.transactions["commit_ts"], list(void)).any():
        return parsed
    transactions = parsed.transactions.copy()
    transactions["kind"][np.isin(transactions["commit_ts"], list(void))] = Kind.VOID
    return replace(parsed, transactions=transactions)


def _has_ddl(kinds: npt.NDArray[np.uint8], position: Position) -> bool:
    """Whether a DDL is among the transactions. Raises for kinds that this version does not read."""
    highest = int(kinds.max(initial=0))
    if highest == 0:
        return False  # nearly always: rows only
    if highest > Kind.VOID:
        raise BadInput(f"entry {position} holds transactions of an unknown kind {highest}")
    return bool(np.any(kinds == Kind.DDL))


def _schema_changes(
    position: Position, parsed: ParsedEntry, schemas: SchemaView, wanted: Wanted | None
) -> Iterator[SchemaChange]:
    """The table versions that begin with this DDL; last those that another one's statement brings about. Their seq is that
    of the statement's event. Who wants tables of a database and not all of it is told that they are dropped with it."""
    transaction = parsed.transactions[parsed.transactions["kind"] == Kind.DDL][0]
    events = split_events(parsed.events)
    statements = np.flatnonzero(events.type == EventType.QUERY)
    event = int(statements[-1]) if len(statements) else int(transaction["first_event"])
    seq = Seq(position.ledger_id, position.entry_id, event, 0).to_bytes()
    statement = statement_of(parsed)
    together = tuple(sorted(schemas.changed_at(position), key=lambda table: table.follows))
    needed = _needed(together, schemas, position)
    for table in together:
        before = schemas.before(table.schema, table.table, position)
        if table.is_sequence or (before is not None and before.is_sequence):
            continue
        if table.kind is ChangeKind.DROP_DATABASE and wanted is not None and not wanted(table.schema, ""):
            for gone in _tables_in(table.schema, schemas, position):
                if wanted(gone.schema, gone.table):
                    drop = TableSchema(gone.schema, gone.table, table.version, (), table.query, DdlType.DROP_TABLE)
                    yield SchemaChange(drop, seq, int(transaction["commit_ts"]), gone, statement, (drop,), (gone,))
        if wanted is None or not table.table or wanted(table.schema, table.table):
            yield SchemaChange(table, seq, int(transaction["commit_ts"]), before, statement, together, needed)


def _tables_in(schema: str, schemas: SchemaView, position: Position) -> list[TableSchema]:
    """The tables of a database just before `position`."""
    names = {table.table for _, table in schemas.items() if table.schema == schema and table.table}
    found = (schemas.before(schema, name, position) for name in sorted(names))
    return [table for table in found if table is not None and not table.is_sequence]


def _needed(together: tuple[TableSchema, ...], schemas: SchemaView, position: Position) -> tuple[TableSchema, ...]:
    """The tables that a statement changes or copies, as they were just before it."""
    earlier = Position(position.ledger_id, position.entry_id - 1)
    models = {table.other for table in together if table.kind is ChangeKind.CREATE and table.other}
    found = [schemas.before(table.schema, table.table, position) for table in together if table.table]
    found += [schemas.named(model, earlier) for model in models]
    return tuple(table for table in found if table is not None and table.columns)


def statement_of(parsed: ParsedEntry) -> Statement | None:
    """The DDL in an entry, as its session wrote it; None if there is none."""
    events = split_events(parsed.events)
    found = np.flatnonzero(events.type == EventType.QUERY)
    if not len(found):
        return None
    fde = replace(parse_format_description(parsed.header.fde), checksum=int(parsed.header.checksum))
    at, size = int(events.offset[found[-1]]), int(events.size[found[-1]])
    return Statement.of(parse_query(parsed.events[at : at + size].tobytes(), fde))


@dataclass(frozen=True, slots=True)
class Origins:
    """For each event of a group: its entry, its ordinal in the entry, and its transaction: index and commit_ts."""

    ledger: npt.NDArray[np.uint64]
    entry: npt.NDArray[np.uint64]
    ordinal: npt.NDArray[np.uint32]
    commit_ts: npt.NDArray[np.uint64]
    transaction: npt.NDArray[np.int64]  # among the records of all entries, one after the other

    def seq(self, event: int) -> bytes:
        """The seq of an event's first row."""
        return Seq(int(self.ledger[event]), int(self.entry[event]), int(self.ordinal[event]), 0).to_bytes()


class _Layout(NamedTuple):
    """The row events of a group that have the same table map."""

    table_map: TableMap
    events: npt.NDArray[np.int64]


class TableRows(NamedTuple):
    """The row events of one table version."""

    table: TableSchema
    layouts: list[_Layout]


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The events of a group in one buffer, and its rows by table version, in the order of their first row event.

    `held`: parked tables, with their first row event.
    """

    buffer: npt.NDArray[np.uint8]
    events: Events
    fde: FormatDescription
    origins: Origins
    tables: list[TableRows]
    held: dict[str, tuple[TableSchema, int]]
    located: Callable[[BadEvent], BadEvent]

    def decode(self, one: TableRows, bytes_max: int | None = None) -> Iterator[DecodedRows]:
        """All rows of a table version in order, in batches of about `bytes_max` of columns."""
        share = (bytes_max or BATCH_BYTES_MAX) // len(one.layouts)
        try:
            yield from in_log_order(
                [
                    decode_rows(self.buffer, self.events, layout.events, layout.table_map, self.fde, share)
                    for layout in one.layouts
                ]
            )
        except BadEvent as error:
            raise self.located(error) from None
        except (NotSupported, BadInput) as error:  # of a column: none of the table's rows can be read
            first = min(int(layout.events[0]) for layout in one.layouts)
            found = BadEvent(error.message, offset=int(self.events.offset[first]), hint=error.hint)
            raise self.located(found) from error

    def counts(self, one: TableRows) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """(events, how many rows each has) for each layout of a table version."""
        try:
            for layout in one.layouts:
                yield layout.events, count_rows(self.buffer, self.events, layout.events, layout.table_map, self.fde)
        except BadEvent as error:
            raise self.located(error) from None


class EntryGroup:
    """Entries that are decoded together: of one format description, without a schema change between them."""

    def __init__(self, schemas: SchemaView, wanted: Wanted) -> None:
        self._schemas = schemas
        self._wanted = wanted
        self._entries: list[tuple[Position, ParsedEntry]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def takes(self, parsed: ParsedEntry) -> bool:
        if not self._entries:
            return True
        return self._bytes + len(parsed.events) <= GROUP_BYTES_MAX and _same_format(
            self._entries[0][1].header, parsed.header
        )

    def add(self, position: Position, parsed: ParsedEntry) -> None:
        self._entries.append((position, parsed))
        self._bytes += len(parsed.events)

    @property
    def entries(self) -> list[tuple[Position, ParsedEntry]]:
        return self._entries

    def rows(self, events_max: int | None = None) -> GroupRows | None:
        """What there is to decode; None without an event. `events_max`: only the rows of so many events."""
        if not self._bytes:
            return None
        header = self._entries[0][1].header
        fde = replace(parse_format_description(header.fde), checksum=int(header.checksum))
        buffer = self._entries[0][1].events
        if len(self._entries) > 1:
            buffer = np.concatenate([parsed.events for _, parsed in self._entries])
        events = split_events(buffer)
        if events_max is not None:
            events = events.some(slice(0, events_max))
        scope, origins, counts = self._origins(events)

        def located(error: BadEvent) -> BadEvent:
            return self._located(error, events, scope)

        try:
            layout = group_rows(buffer, events, fde, scope)
        except BadEvent as error:
            raise located(error) from None
        layout.layout[~counts] = -1
        tables: dict[tuple[str, str, int], TableRows] = {}
        held: dict[str, tuple[TableSchema, int]] = {}
        for map_event, chosen in layout.groups():
            found = self._layout(buffer, events, fde, map_event, chosen, scope)
            if found is not None:
                if found[1] is None:
                    first = min(int(chosen[0]), held.get(found[0].name, (found[0], int(chosen[0])))[1])
                    held[found[0].name] = (found[0], first)
                    continue
                table = found[0]  # one table may have two versions here: a drifted schema gets a new one without a DDL
                key = (table.schema, table.table, table.version)
                tables.setdefault(key, TableRows(table, [])).layouts.append(found[1])
        return GroupRows(buffer, events, fde, origins, list(tables.values()), held, located)

    def _layout(  # noqa: PLR0917
        self,
        buffer: npt.NDArray[np.uint8],
        events: Events,
        fde: FormatDescription,
        map_event: int,
        chosen: npt.NDArray[np.int64],
        scope: npt.NDArray[np.int64],
    ) -> tuple[TableSchema, _Layout | None] | None:
        """The table and layout of some row events: None for rows that nobody wants, no layout for a parked table."""
        start = int(events.offset[map_event])
        table_map = parse_table_map(buffer[start : start + int(events.size[map_event])].tobytes(), fde)
        if not self._wanted(table_map.schema, table_map.table):
            return None
        position = self._entries[int(scope[chosen[0]])][0]
        known = self._schemas.find(table_map.schema, table_map.table, position)
        if known is not None and known.is_sequence:
            return None
        if known is not None and known.parked:
            return known, None
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
        found = error.at(offset, file=f"log entry {position}, transaction at {file}:{int(at['start_pos'])}")
        found.index, found.transaction = event, (file, int(at["start_pos"]))
        return found

    def _origins(self, events: Events) -> tuple[npt.NDArray[np.int64], Origins, npt.NDArray[np.bool_]]:
        """For each event: the index of its entry, its origin, and whether its rows count."""
        starts = np.cumsum([0, *(len(parsed.events) for _, parsed in self._entries)])
        inner = starts[1:-1][starts[1:-1] < starts[-1]]
        inner = inner[inner <= events.offset[-1]] if len(events) else inner[:0]
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
        origins = Origins(
            positions[scope, 0],
            positions[scope, 1],
            (np.arange(len(events)) - first[scope]).astype(np.uint32),
            commit_ts[transaction],
            transaction,
        )
        return scope, origins, counts


def _same_format(a: EntryHeader, b: EntryHeader) -> bool:
    return a.fde == b.fde and a.checksum == b.checksum and a.flavour == b.flavour


def _batch(table: TableSchema, rows: DecodedRows, origins: Origins) -> ChangeBatch:
    seq = np.empty(len(rows), SEQ_DTYPE)
    seq["ledger"] = origins.ledger[rows.event]
    seq["entry"] = origins.entry[rows.event]
    seq["event"] = origins.ordinal[rows.event]
    seq["row"] = rows.row
    commit_ts = origins.commit_ts[rows.event]
    return ChangeBatch(table, rows.op, seq, commit_ts, rows.before, rows.after, rows.present_before, rows.present_after)
