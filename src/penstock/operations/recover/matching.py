"""Up to where each table of a sink is delivered, in a new log that begins at or before the sink's point.

The source gives the same changes in the same order again, and a sink has the first ones of each table: so as many as it has
beyond its point are taken for delivered, and the last of them must be equal. A statement is at the sink if rows after it are, or
if its schema file is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from penstock.encode.format import FileFormat
from penstock.encode.poison import accepted
from penstock.entries.decode import decode_entries
from penstock.entries.format import Kind, parse_entry
from penstock.errors import BadInput
from penstock.log import LogReader
from penstock.log.position import Seq
from penstock.operations.recover.contents import Contents, Name, TableAtSink, values_of
from penstock.operations.verify.log_replay import LogHistory
from penstock.rules.passage import Passage
from penstock.rules.rules import Rules
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.forwarding import forwarded
from penstock.sources.position import SourcePosition, file_number, files_between


@dataclass(slots=True)
class Matched:
    """`progress`: of each table, by its name at the sink, the last seq of the new log that the sink has. `wrong`: what it has
    and the source has not, in words; of those tables nothing beyond the point is taken for delivered."""

    progress: dict[Name, Seq] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Table:
    left: int  # changes that the sink has, and that were not met yet
    at_sink: TableAtSink
    reached: Seq | None = None  # beyond the point
    over: bool = False  # a change was met that the sink does not have


def find_bound(reader: LogReader, history: LogHistory, point: SourcePosition) -> Seq:
    """The seq of the first change that is not before `point`."""
    for entry in reader.read(reader.first, history.complete_end):
        if not len(entry.data):
            continue
        parsed = parse_entry(entry.data)
        for one in parsed.transactions:
            if one["kind"] in (Kind.HELD, Kind.VOID):
                continue
            file, end = parsed.header.files[int(one["end_file"])], int(one["end_pos"])
            if files_between(point.file, file) is None or parsed.header.source != point.source:
                raise BadInput(
                    f"the sinks are at different places of the source, and {file} says nothing of {point}",
                    hint="recover one sink at a time: take the others out of the configuration, and give them a new url later",
                )
            if (file_number(file), end) > (file_number(point.file), point.pos):
                return Seq(entry.position.ledger_id, entry.position.entry_id, int(one["first_event"]), 0)
    end_of_log = reader.next(reader.end())
    return Seq(end_of_log.ledger_id, max(0, end_of_log.entry_id), 0, 0)


class Matching:
    """One sink. `bound`: everything before it is at the sink; None where the log begins at the sink's own point. `refuses`: the
    format's rows that it refuses are among the dead letters, and not in its files."""

    def __init__(
        self, rules: Rules, fmt: FileFormat, contents: Contents, bound: Seq | None = None, *, refuses: bool = False
    ) -> None:
        self._rules = rules
        self._format = fmt
        self._bound = bound
        self._refuses = refuses
        self._tables = {name: _Table(one.changes, one) for name, one in contents.tables.items()}
        self._found = Matched()

    def match(self, reader: LogReader, history: LogHistory) -> Matched:
        meeting = self._meeting(history)
        for change in self._changes(reader, history):
            name = (change.table.schema, change.table.table)
            table = self._tables.setdefault(name, _Table(0, TableAtSink()))
            if isinstance(change, ChangeBatch):
                self._take_rows(name, table, change)
            else:
                self._take_statement(name, table, change)
        for name, table in self._tables.items():
            if name in meeting and table.at_sink.changes:
                self._wrong(name, table, "rows of several tables meet in it, and their order is not to be told")
            elif table.left:
                lacking = f"the sink has {table.at_sink.changes:,} changes, and the source {table.at_sink.changes - table.left:,}"
                self._wrong(name, table, lacking)
            elif name[1] and table.at_sink.statements:
                query = table.at_sink.statements[0].query[:120]
                self._wrong(name, table, f"the source does not have the statement {query!r} in its place")
            if table.reached is not None:
                self._found.progress[name] = table.reached
        return self._found

    def _meeting(self, history: LogHistory) -> set[Name]:
        """The names at the sink of tables that were not routed to be one."""
        return {self._rules.target(*name) for name in self._rules.meetings(history.schemas.names())}

    def _changes(self, reader: LogReader, history: LogHistory) -> Iterator[ChangeBatch | SchemaChange]:
        """As the tasks of a run see the log."""
        rules, schemas, end = self._rules, history.schemas, history.complete_end
        if reader.first > end:
            return

        def wanted(schema: str, table: str) -> bool:
            return rules.wants(schema, table) and (bool(table) or rules.sees_database(schema))

        passage = Passage(rules, schemas.names() if rules.has_routes else (), schemas)
        entries = reader.read(reader.first, end)
        for change in decode_entries(entries, schemas, wanted, history.void, parks=True, on_group=passage.next_group):
            if rules.wants(change.table.schema, change.table.table):
                yield from passage.apply(change)
        yield from passage.finish()

    def _take_statement(self, name: Name, table: _Table, change: SchemaChange) -> None:
        seq = Seq.from_bytes(change.seq)
        if change.table.parked:
            table.over = True
        elif self._is_before(seq):
            self._has(name, seq)
        elif table.left:
            table.reached = seq
        elif not table.over:
            told = forwarded(change, lambda _schema, _table: True)
            known = [(one.query, one.kind) for one in table.at_sink.statements]
            if (told.query, int(told.ddl_type)) in known:
                del table.at_sink.statements[: known.index((told.query, int(told.ddl_type))) + 1]
                table.reached = seq
            elif told.query:
                table.over = True

    def _take_rows(self, name: Name, table: _Table, batch: ChangeBatch) -> None:
        if self._bound is not None:
            raw = batch.seq.view("S24").ravel()
            before = int(np.searchsorted(raw, np.bytes_(self._bound.to_bytes())))
            if before:
                self._has(name, _seq(batch, before - 1))
            batch = batch.slice(before, len(batch))
        if not len(batch) or table.over:
            return
        if not table.left:
            table.over = True
            return
        parts = accepted(self._format.encode, batch) if self._refuses else iter([(batch, b"", "")])
        for part, body, _ in parts:
            if not table.left:
                table.over = True
                return
            if body is not None:
                self._take_accepted(name, table, part)

    def _take_accepted(self, name: Name, table: _Table, part: ChangeBatch) -> None:
        taken = self._taken(part, table.left)
        if taken is None:
            self._wrong(name, table, "the last change at the sink is only half of one at the source")
            table.over, table.left = True, 0
            return
        count, units = taken
        table.left -= units
        table.reached = _seq(part, count - 1)
        if count < len(part):
            table.over = True
        if table.left:
            return
        last = values_of(self._format.rows_of(part.slice(count - 1, count)))
        if table.at_sink.last is not None and last != table.at_sink.last:
            self._wrong(
                name, table, f"its last change is {_shown(table.at_sink.last)}, and at the source {_shown(last)}"
            )

    def _taken(self, part: ChangeBatch, left: int) -> tuple[int, int] | None:
        """How many changes the sink has of these, and what they count there; None where that splits one."""
        if self._format.name != "csv":
            count = min(left, len(part))
            return count, count
        low, high = 0, len(part)  # a change of a key is two lines, so lines are counted
        while low < high:
            middle = (low + high + 1) // 2
            if self._format.rows_of(part.slice(0, middle)).num_rows <= left:
                low = middle
            else:
                high = middle - 1
        units = self._format.rows_of(part.slice(0, low)).num_rows if low else 0
        return (low, units) if low and (low == len(part) or units == left) else None

    def _has(self, name: Name, seq: Seq) -> None:
        """The sink has it, before its point. Of tables that are one there, rows come table by table, not in the order of the log."""
        self._found.progress[name] = max(seq, self._found.progress.get(name, seq))

    def _is_before(self, seq: Seq) -> bool:
        return self._bound is not None and seq < self._bound

    def _wrong(self, name: Name, table: _Table, why: str) -> None:
        self._found.wrong.append(f"{'.'.join(name).rstrip('.')}: {why}")
        table.reached = None
        table.left, table.at_sink = 0, TableAtSink()


def _seq(batch: ChangeBatch, number: int) -> Seq:
    return Seq.from_bytes(batch.seq[number].tobytes())


def _shown(values: dict[str, object]) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in values.items())
    return text if len(text) <= 160 else f"{text[:159]}…"
