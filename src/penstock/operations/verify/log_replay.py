"""The changes that a sink must hold: the log decoded again with the schemas of its own history, for the tables that the
sink takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.entries.decode import decode_entries
from penstock.entries.stores import LOAD_SCOPE, LOAD_TABLE, SOURCE, SOURCE_POSITION
from penstock.log import Entry, LogReader, Position
from penstock.log.position import Seq
from penstock.operations.verify.lineage import Lineage
from penstock.rules.passage import Passage
from penstock.rules.rules import Change, everything
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import number_at
from penstock.rules.wholes import joined
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.forwarding import forwarded, has_no_file
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.load import TableLoad
from penstock.sources.position import SourcePosition
from penstock.sources.settings import LoadScope
from penstock.spark.log_follower import LogFollower
from penstock.state import StateLost, StateReader

_NEVER = b"\xff" * 24  # after every seq


@dataclass(frozen=True, slots=True)
class LogHistory:
    """`complete_end` is the last entry after which no transaction is open; entry -1 if there is none.

    `in_force` are the tables before the first entry that is still there; empty if nothing was trimmed. `void`: the commit_ts
    of transactions that never happened.
    """

    schemas: SchemaView
    in_force: tuple[TableSchema, ...]
    complete_end: Position
    void: frozenset[int] = frozenset()


def read_history(reader: LogReader) -> LogHistory:
    """Follows the log's frames, without their data, to its durable end."""
    while (found := _read_history(reader)) is None:
        pass
    return found


def _read_history(reader: LogReader) -> LogHistory | None:
    """None if a parked table was resumed meanwhile: then frames that were read already mean something else."""
    # From the first entry that is left, not from a later checkpoint: entries before that checkpoint have older schemas.
    follower = LogFollower(reader, None if reader.complete else reader.first)
    in_force = follower.in_force()
    schemas = SchemaView(in_force)
    end = Position(reader.first.ledger_id, -1)
    void: set[int] = set()
    while frames := follower.more():
        for frame in frames:
            if frame.resumes:
                return None
            void.update(frame.void)
            for table in frame.schemas:
                schemas.add(frame.position, table)
            if frame.whole:
                end = frame.position
    return LogHistory(schemas, tuple(one.table for one in in_force), end, frozenset(void))


class _State(NamedTuple):
    """How far the load of each table is, of no table where none was asked for; up to where the source was read; and which
    tables were to be loaded by themselves, None for none."""

    loads: dict[tuple[str, str], TableLoad]
    position: SourcePosition | None
    scope: LoadScope | None


def _state_of(reader: LogReader, at: Position | None = None) -> _State:
    """At the end of the log, or at a position."""
    state = StateReader.open(reader, at=at)
    try:
        loads = {(str(key[0]), str(key[1])): load for key, load in state.store(LOAD_TABLE).items()}
        return _State(loads, state.store(SOURCE_POSITION).get(SOURCE), state.store(LOAD_SCOPE).get(SOURCE))
    finally:
        state.close()


class LogReplay:
    """Reads the log up to the end of its last whole transaction. Changes up to `through` are at the sink.

    Changes are as the sink sees them, by the rules that hold where they are; `latest` and `lineage` are of the source, and
    `rules` those of the newest version.

    `latest` is the newest schema of each table, once `changes` is exhausted; `parked` are the tables whose rows the log
    holds back, because a statement before them was not understood. `statements` are the versions that statements made, of
    which the sink's readers have been told. `lineage` knows under which names their rows are.
    `entries_read` of `entries_count` are behind `changes`.
    """

    def __init__(self, reader: LogReader, through: Position, rules: VersionedRules | None = None) -> None:
        self.versioned = rules if rules is not None else VersionedRules(())
        self.rules = self.versioned.newest
        self._now = self.versioned.all[0]  # the rules where `changes` is
        self._reader = reader
        self._through = through
        self.first = reader.first  # a log that is in use may be trimmed at any moment: from here on it is one value
        self._history = read_history(reader)
        self._end = reader.end()
        self.loads, self._position, self._scope = _state_of(reader)
        self.latest: dict[tuple[str, str], TableSchema] = {
            (table.schema, table.table): table for table in self._history.in_force if self._takes_ever(table)
        }
        self._first_versions = {(table.schema, table.table): table for table in self._history.in_force}
        for key in self.loads:  # also those without a row, which nothing in the log names but their load
            table = self._history.schemas.find(*key, self._history.complete_end)
            if table is not None and self._takes_ever(table):
                self.latest.setdefault(key, table)
        self._passage: Passage | None = None
        self.parked: dict[str, TableSchema] = {}
        self.statements: list[tuple[Seq, TableSchema]] = []
        self._at_sink = True  # where `changes` is
        self.entries_read = 0
        self._rows_from: dict[tuple[str, str], bytes] = {}
        self._number = 0
        self.lineage = Lineage(self._takes)
        # Wholes of which a table went, and why: its rows are still there.
        self.left: dict[tuple[str, str], str] = {}
        for _, table in self._history.schemas.items():  # also those of which no statement is in the log any more
            if table.dropped and table.table:
                self._note_left(table)

    @property
    def entries_count(self) -> int:
        first, end = self.first, self._history.complete_end
        return self._reader.count(Position(first.ledger_id, first.entry_id - 1), end) if first <= end else 0

    def begins_here(self, key: tuple[str, str]) -> bool:
        """Whether the log has every row that the table ever had: it was made, or emptied, by a statement of the log, or it
        was loaded. Then a source without a change in the log has no row either."""
        return key in self.loads or self.lineage.begins_here(key)

    def has_all_rows(self, key: tuple[str, str]) -> bool:
        """Whether the log has had every row that the table has. If not, rows were there before it began (`start: now`) that
        no sink gets before they change."""
        load = self.loads.get(key)
        if load is not None and load.done and not load.note and not load.where:
            return True
        origin = self.lineage.spans(key)[0].name
        if self._scope is not None and (self._scope.matches(*key) or self._scope.matches(*origin)):
            return True
        begun = self._first_versions.get(origin)  # as far as the statement that began it is known, in a trimmed log
        made = begun is not None and (begun.kind is ChangeKind.CREATE or begun.ddl_type is DdlType.TRUNCATE_TABLE)
        return made or self.lineage.begins_here(key)

    @property
    def complete(self) -> bool:
        """Whether the log still has its first entry."""
        return self._reader.complete

    def lacks(self, source: SourcePosition | None) -> bool:
        """Whether the source has, or may have, changes at this position that were not there to be replayed: the log has grown
        since, or nobody has read them yet."""
        if self._reader.end() > self._end:
            return True
        return source is not None and self._position is not None and not self._position.reaches(source)

    def names_at_sink(self, name: tuple[str, str]) -> list[tuple[tuple[str, str], bytes, bytes]]:
        """The names that a table of the source has had at the sink, each with the seq from which and the one before which it
        was that: a later table of the same name may be routed elsewhere."""
        found: list[tuple[tuple[str, str], bytes, bytes]] = []
        firsts = [_first_seq(version.since) for version in self.versioned.versions]
        for rules, first, until in zip(self.versioned.all, firsts, [*firsts[1:], _NEVER], strict=True):
            if not rules.wants(*name):
                continue
            target = rules.target(*name)
            if found and found[-1][0] == target and found[-1][2] == first:
                first = found.pop()[1]  # noqa: PLW2901
            found.append((target, first, until))
        return found

    def changed_since(self, key: tuple[str, str], table: TableSchema) -> Position | None:
        """Where the settings last changed what the sink gets of a table, if rows from before it are a part of it now."""
        every = self.versioned.all
        for number in range(len(every) - 1, 0, -1):
            before = every[number - 1].treatment(table)
            since = self.versioned.versions[number].since
            if self._changed_before_rename(key, table, number, _first_seq(since)):
                return since
            if every[number].treatment(table) == before:
                continue
            if self.lineage.begins_after(key, _first_seq(since)):
                return None
            if before is None and self._loaded_after(key, since):
                self._rows_from[key] = _first_seq(since)
                return None
            return since
        return None

    def _changed_before_rename(self, key: tuple[str, str], table: TableSchema, number: int, first: bytes) -> bool:
        """Whether the settings changed, at `first`, what the sink gets of it while it had another name."""
        before, after = self.versioned.all[number - 1 : number + 1]
        for span in self.lineage.spans(key):
            if span.name != key and span.after < first <= span.to:
                then = replace(table, schema=span.name[0], table=span.name[1])
                if before.treatment(then) != after.treatment(then):
                    return True
        return False

    def rows_from(self, key: tuple[str, str]) -> bytes:
        """The seq before which nothing counts of what the sink has of a table; empty if everything does."""
        return self._rows_from.get(key, b"")

    def _loaded_after(self, key: tuple[str, str], position: Position) -> bool:
        """Whether all rows that the table has were loaded after `position`."""
        load = self.loads.get(key)
        if load is None or not load.done or load.note or load.where:
            return False
        try:
            known = _state_of(self._reader, Position(position.ledger_id, position.entry_id - 1)).loads.get(key)
        except StateLost:
            return False
        return known is None or known.begun_ms != load.begun_ms

    def unknown_masks(self) -> dict[tuple[str, str], Seq]:
        """The tables, by their names at the sink, with rows in the log that were masked by a key that is not at hand, and the
        seq up to which they cannot be compared."""
        found: dict[tuple[str, str], Seq] = {}
        versions = self.versioned.versions
        for number, rules in enumerate(self.versioned.all):
            if self.versioned.has_key(number) or (
                number + 1 < len(versions) and versions[number + 1].since <= self.first
            ):
                continue
            until = versions[number + 1].since if number + 1 < len(versions) else Position(self._end.ledger_id + 1, 0)
            for name in self._history.schemas.names():
                if rules.wants(*name) and rules.masks_by_key(name):
                    found[rules.target(*name)] = Seq(until.ledger_id, max(0, until.entry_id), 0, 0)
        return found

    def changes(self) -> Iterator[tuple[ChangeBatch, bool]]:
        """Yields each batch of changes, and whether it may still be on its way to the sink."""
        end = self._history.complete_end
        for batch in self._ranges(self.first, min(self._through, end)):
            yield batch, False
        self._at_sink = False
        if self._through < end:
            for batch in self._ranges(max(self.first, self._reader.next(self._through)), end):
                yield batch, True

    def _ranges(self, start: Position, end: Position) -> Iterator[ChangeBatch]:
        """The range, in parts that have one version of the settings each."""
        edges = [version.since for version in self.versioned.versions if start < version.since <= end]
        for first, until in zip([start, *edges], [*edges, None], strict=True):
            self._hold(first)
            last = end if until is None else Position(until.ledger_id, until.entry_id - 1)
            yield from self._between(first, last)

    def _hold(self, position: Position) -> None:
        """The rules that hold from `position` on are in force."""
        self._number = number_at(self.versioned.versions, position)
        rules = self.versioned.all[self._number]
        if self._passage is None or self._passage.rules is not rules:
            self._now = rules
            self._passage = Passage(rules, self._history.schemas.names(), self._history.schemas, self._passage)

    def _between(self, start: Position, end: Position) -> Iterator[ChangeBatch]:
        assert self._passage is not None
        has_key = self.versioned.has_key(self._number)
        entries = self._entries(start, end)
        passage = self._passage
        for item in decode_entries(
            entries, self._history.schemas, void=self._history.void, parks=True, on_group=passage.next_group
        ):
            if isinstance(item, SchemaChange) and not item.table.parked:
                self.lineage.take(item)
                again = item.kind is ChangeKind.CREATE and item.before is not None
                if item.table.dropped or again or item.kind is ChangeKind.DROP_DATABASE:
                    self._note_left(item.table)
                if item.kind is ChangeKind.DROP_DATABASE:
                    self.latest = {key: table for key, table in self.latest.items() if key[0] != item.table.schema}
            if not self._takes(item.table):
                continue
            if isinstance(item, ChangeBatch):
                self.lineage.take_rows(item)
            name = (item.table.schema, item.table.table)
            self.latest[name] = item.table
            if not has_key and self._now.masks_by_key(name):
                continue
            yield from self._batches(passage.apply(item))
        yield from self._batches(passage.finish())

    def _batches(self, changes: Iterator[Change]) -> Iterator[ChangeBatch]:
        for seen in changes:
            if isinstance(seen, ChangeBatch):
                yield seen
            elif seen.table.parked:
                self.parked.setdefault(seen.table.name, seen.table)  # the statement that parked it, not a later one
            elif self._at_sink and (seen.table.table or self._now.sees_database(seen.table.schema)):
                self._note_statement(seen)

    def _note_statement(self, change: SchemaChange) -> None:
        told = forwarded(change, everything)
        if not told.parked and not has_no_file(told):
            self.statements.append((Seq.from_bytes(change.seq), told))

    def _note_left(self, table: TableSchema) -> None:
        rules = self.rules
        names = self._history.schemas.names() if not table.table else [(table.schema, table.table)]
        for name in names:
            if name[0] == table.schema and name[1] and rules.wants(*name) and rules.gathers(name):
                self.left.setdefault(rules.target(*name), f"{'.'.join(name)} went ({table.query[:120]!r})")

    def parts(self, target: tuple[str, str]) -> list[TableSchema]:
        """The tables of the source that are this one at the sink, as they are at the end of the log."""
        rules = self.rules
        tables = self._history.schemas.in_force(self._history.complete_end)
        found = [one for one in tables if one.columns and rules.wants(one.schema, one.table)]
        chosen = [one for one in found if rules.gathers((one.schema, one.table))]
        return sorted(
            (one for one in chosen if rules.target(one.schema, one.table) == target), key=lambda one: one.name
        )

    def whole(self, target: tuple[str, str]) -> TableSchema:
        """What they are together. Raises `RuleMismatch` where they do not go together."""
        return joined(target, self.parts(target), self.rules)

    def _entries(self, start: Position, end: Position) -> Iterator[Entry]:
        for entry in self._reader.read(start, end):
            self.entries_read += 1
            yield entry

    def _takes(self, table: TableSchema) -> bool:
        return self._now.wants(table.schema, table.table)

    def _takes_ever(self, table: TableSchema) -> bool:
        return any(rules.wants(table.schema, table.table) for rules in self.versioned.all)


def _first_seq(position: Position) -> bytes:
    return Seq(position.ledger_id, max(0, position.entry_id), 0, 0).to_bytes()
