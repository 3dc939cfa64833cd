"""Log entries → changes of tables, in columns.

Entries are decoded in groups of up to `GROUP_BYTES_MAX`, because small batches cost several times as much per row; a
group never reaches across a DDL. Rows come by table, each table in seq order, in batches of about `BATCH_BYTES_MAX`: a
batch is never larger because its rows took little space in the log. A `SchemaChange` comes after all rows that precede
it in the log, and before all that follow. No Python runs per event or per row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.binlog.bodies import parse_format_description, parse_query
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events
from penstock.binlog.rows import DecodedRows
from penstock.binlog.types import EventType
from penstock.entries.chunk import read_chunk
from penstock.entries.format import Kind, ParsedEntry, parse_entry
from penstock.entries.group import GROUP_BYTES_MAX, EntryGroup, GroupRows, Origins, TableRows, Wanted, unreadable
from penstock.errors import BadInput
from penstock.log import Entry
from penstock.log.position import Position, Seq
from penstock.schema.catalog import SYSTEM_SCHEMAS
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch, SchemaChange
from penstock.schema.ddl.session import Statement
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

_AFTER_ALL = Position((1 << 63) - 1, 0)


def decode_entries(
    entries: Iterable[Entry],
    schemas: SchemaView,
    wanted: Wanted | None = None,
    void: Collection[int] = (),
    *,
    parks: bool = False,
    on_group: Callable[[], None] = lambda: None,
) -> Iterator[ChangeBatch | SchemaChange]:
    """The changes of `entries`, which are in the order of the log.

    `void`: the commit_ts of transactions that never happened although parts of them are in the log. These parts, held
    groups and void records are passed over.

    `schemas` must know every version of the tables that the entries change. With `wanted`, rows of other tables are not
    decoded; without it only those of the server's own schemas are left out. So are the rows of a table from before its first
    version: nobody followed it when they came.

    Rows that cannot be read raise an error. With `parks`, where they are those of one table alone, a change of kind UNKNOWN
    with the reason stands in front of the first of them, for this group of entries, and other tables go on.

    `on_group` is called before the first change of each group: all of them lie after those of the groups before, also where
    they are other tables'.
    """
    follows = _without_system(wanted)
    group = EntryGroup(schemas, follows, parks=parks)
    for entry in entries:
        if not len(entry.data):
            continue  # a frame with state only
        parsed = _without_void(parse_entry(entry.data), void)
        if Kind.CHUNK in parsed.transactions["kind"]:
            yield from _changes(group, on_group)
            group = EntryGroup(schemas, follows, parks=parks)
            on_group()
            yield from _chunk(entry.position, parsed, schemas, follows, parks=parks)
            continue
        is_ddl = _has_ddl(parsed.transactions["kind"], entry.position)
        if is_ddl or not group.takes(parsed):
            yield from _changes(group, on_group)
            group = EntryGroup(schemas, follows, parks=parks)
        if is_ddl:
            on_group()
            yield from _schema_changes(entry.position, parsed, schemas, wanted)
        group.add(entry.position, parsed)
    yield from _changes(group, on_group)


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


def _changes(group: EntryGroup, on_group: Callable[[], None] = lambda: None) -> Iterator[ChangeBatch | SchemaChange]:
    """Batches of one table version after the other, ordered by their first row; each table's in seq order. In place of
    the rows of a parked table, a change of kind UNKNOWN."""
    rows = group.rows()
    if rows is None:
        return
    on_group()
    for name, (table, first) in rows.held.items():
        for one in rows.tables:
            if one.table.name == name:  # logged in another way before
                yield from _table_changes(rows, one.before(first), parks=group.parks)
        yield SchemaChange(table, rows.origins.seq(first), int(rows.origins.commit_ts[first]), table)
    for one in rows.tables:
        if one.table.name not in rows.held:
            yield from _table_changes(rows, one, parks=group.parks)


def _table_changes(rows: GroupRows, one: TableRows, *, parks: bool) -> Iterator[ChangeBatch | SchemaChange]:
    if not one.layouts:
        return
    last: tuple[int, int] | None = None  # event and row of the last one that could be read
    try:
        for part in rows.decode(one):
            last = int(part.event[-1]), int(part.row[-1])
            yield _batch(one.table, part, rows.origins)
    except BadEvent as error:
        if not parks:
            raise
        yield from _up_to_unreadable(rows, one, last, error)


def _up_to_unreadable(
    rows: GroupRows, one: TableRows, last: tuple[int, int] | None, error: BadEvent
) -> Iterator[ChangeBatch | SchemaChange]:
    """The rows after `last` up to the first event that cannot be read, then a change of kind UNKNOWN in front of it. Whatever is
    decoded together, the table stops at the same row: a run that stopped further ahead would be taken for delivered."""
    events = one.events
    readable, bad = 0, len(events)  # so many events can be read, so many cannot
    while bad - readable > 1:
        tried = (readable + bad) // 2
        try:
            for _ in rows.decode(one.before(int(events[tried]))):
                pass
            readable = tried
        except BadEvent as earlier:
            bad, error = tried, earlier
    stop = int(events[readable])
    after = -1 if last is None else last[0]
    for part in rows.decode(one.before(stop)) if readable and after < stop else ():
        passed = int(np.searchsorted(part.event, after, side="left"))
        if last is not None:  # of its event, those up to the last row
            passed += int(np.count_nonzero((part.event == after) & (part.row <= last[1])))
        if passed < len(part):
            yield _batch(one.table, part.slice(passed, len(part)), rows.origins)
    row = last[1] + 1 if last is not None and last[0] == stop else 0
    seq = Seq.from_bytes(rows.origins.seq(stop))._replace(row=row).to_bytes()
    yield SchemaChange(unreadable(one.table, error), seq, int(rows.origins.commit_ts[stop]), one.table)


def _chunk(
    position: Position, parsed: ParsedEntry, schemas: SchemaView, follows: Wanted, *, parks: bool
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
        wrong = BadInput(
            f"entry {position}: the chunk of {table.name} is of version {chunk.version}, not {table.version}"
        )
        if not parks:
            raise wrong
        seq = Seq(position.ledger_id, position.entry_id, 0, 0).to_bytes()
        yield SchemaChange(unreadable(table, wrong), seq, commit_ts, table)
        return
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


def _batch(table: TableSchema, rows: DecodedRows, origins: Origins) -> ChangeBatch:
    seq = np.empty(len(rows), SEQ_DTYPE)
    seq["ledger"] = origins.ledger[rows.event]
    seq["entry"] = origins.entry[rows.event]
    seq["event"] = origins.ordinal[rows.event]
    seq["row"] = rows.row
    commit_ts = origins.commit_ts[rows.event]
    return ChangeBatch(table, rows.op, seq, commit_ts, rows.before, rows.after, rows.present_before, rows.present_after)
