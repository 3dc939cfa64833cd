"""Statements in the stream: what a QUERY event does to the open transaction, its savepoints, and the schemas."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from penstock.binlog.bodies import Query, parse_mariadb_gtid, parse_query
from penstock.binlog.errors import BadEvent
from penstock.binlog.types import HEADER_BYTES, EventType, Flavour
from penstock.capture.transactions.classify import XA_VERBS, Statement, Verb, classify
from penstock.capture.transactions.frame_content import Ending, FrameContent
from penstock.capture.transactions.kernel import Phase, Slot
from penstock.capture.transactions.machine import TransactionMachine
from penstock.capture.transactions.packer import Mark
from penstock.capture.transactions.xa import XaGroups
from penstock.entries.format import Kind, Part
from penstock.schema.ddl.values_hidden import without_values
from penstock.schema.model import TableSchema
from penstock.sources.source import SourceError

SAVEPOINTS_MAX = 100_000  # servers log no RELEASE, so in a long transaction they would pile up
_SHOWN_MAX = 80  # characters of a statement
_TOLD = frozenset({Verb.DDL, Verb.DML, Verb.OTHER})  # statements that do something themselves


class Statements:
    """Statements of one stream, for its machine."""

    def __init__(self, machine: TransactionMachine, xa: XaGroups) -> None:
        self._machine = machine
        self._state = machine.packer.state
        self._xa = xa
        self._savepoints: dict[str, Mark] = {}  # the oldest first
        self._taken_back = array("q")  # what ROLLBACK TOs took back: ascending pairs of ordinals of source events
        self._savepoints_of = -1  # the number of the transaction that both belong to

    def take(self, event: memoryview, end: int) -> Iterator[FrameContent]:
        """A statement that the kernel does not know. `end`: source offset after the event."""
        machine = self._machine
        query = parse_query(event, machine.need_fde())
        statement = classify(query.sql)
        if statement.verb in XA_VERBS:
            yield from self._xa.statement(statement, event, end)
            return
        if machine.inside:
            yield from self._inside(statement, query, event, end)
            return
        made = self._made(statement, query)
        if made:
            yield from self._ddl(event, end, made)
            return
        told = machine.told(Ending.STATEMENT, event, query=query) if machine.tells else None
        self._state[Slot.POS] = end
        yield from machine.end_empty()
        if told is not None and statement.verb in _TOLD:
            yield from machine.tell(told)

    def _made(self, statement: Statement, query: Query) -> tuple[TableSchema, ...]:
        """The versions that the statement makes. A table whose rows a statement changes is parked: its rows after that do
        not follow from those before. What happens in tables that nobody follows is nothing."""
        machine = self._machine
        version = machine.clock.peek()
        if statement.verb is Verb.DDL:
            return () if self._alter_without_effect() else machine.schemas.after_ddl(query, version)
        if statement.verb is not Verb.DML or machine.tells:
            return ()
        made = machine.schemas.after_rows_statement(query, version)
        if made is None:
            where = f"{machine.reading.file}:{int(self._state[Slot.POS])}"
            shown = without_values(query.sql, query.sql_mode)[:_SHOWN_MAX]
            raise SourceError(
                f"{where} holds a statement instead of rows, and which tables it changes cannot be told: {shown!r}",
                hint="SET GLOBAL binlog_format = 'ROW'; and start again after that point",
            )
        return made

    def _inside(self, statement: Statement, query: Query, event: memoryview, end: int) -> Iterator[FrameContent]:
        machine, state = self._machine, self._state
        verb = statement.verb
        skipping = bool(state[Slot.SKIP])
        told = machine.told(Ending.ROLLBACK, event) if machine.tells and verb is Verb.ROLLBACK else None
        if verb in (Verb.ROLLBACK, Verb.COMMIT) and skipping:
            yield from machine.ends_early(committed=verb is Verb.COMMIT)
            skipping = False
        ordinal = int(state[Slot.SOURCE_EVENTS])
        made = () if skipping else self._made(statement, query)  # skipping: it is in the log, whatever is known by now
        state[Slot.POS] = end
        if made:
            yield from self._ddl_inside(event, made)
            return
        yield from machine.count(event)
        if machine.tells and verb in _TOLD and not machine.is_undone(ordinal):
            yield from machine.keep(event)
        if verb is Verb.SAVEPOINT:
            self._savepoint(statement.name)
        elif verb is Verb.ROLLBACK_TO:
            yield from self._roll_back_to(statement.name, ordinal, skipping=skipping)
        elif verb is Verb.ROLLBACK:
            yield from machine.roll_back()
            if told is not None:
                yield from machine.tell(told)
        elif verb is Verb.COMMIT:
            yield from machine.commit()

    def _savepoint(self, name: str) -> None:
        number = int(self._state[Slot.NUMBER])
        if self._savepoints_of != number:
            self._savepoints, self._taken_back, self._savepoints_of = {}, array("q"), number
        self._savepoints.pop(name, None)  # the last one of a name counts, and is the youngest
        if len(self._savepoints) >= SAVEPOINTS_MAX:
            del self._savepoints[next(iter(self._savepoints))]
        self._savepoints[name] = self._machine.packer.mark()

    def _roll_back_to(self, name: str, ordinal: int, *, skipping: bool) -> Iterator[FrameContent]:
        """Drops what came after the savepoint; what is in the log of it already makes the transaction void."""
        machine = self._machine
        mark = self._savepoints.get(name) if self._savepoints_of == self._state[Slot.NUMBER] else None
        if mark is None:
            raise BadEvent(
                f"it goes back to the savepoint {name!r}, which is not among the last {SAVEPOINTS_MAX} of the transaction"
            )
        while next(reversed(self._savepoints)) != name:
            self._savepoints.popitem()  # those after it are gone
        taken_back = self._taken_back
        while taken_back and taken_back[-2] >= mark.source_events:
            del taken_back[-2:]
        taken_back.extend((mark.source_events, ordinal))
        if not skipping and not machine.packer.go_back(mark):  # skipping: what is in the log was appended without it
            yield from machine.void_and_learn(taken_back)

    def _ddl(self, event: memoryview, end: int, made: tuple[TableSchema, ...]) -> Iterator[FrameContent]:
        """A DDL that is a transaction by itself: alone in its entry, after the GTID that announced it."""
        machine, state = self._machine, self._state
        yield from machine.flush()
        if state[Slot.PHASE] == Phase.OUTSIDE:
            yield from machine.begin_without_gtid(Phase.STANDALONE)
        if machine.open is not None:
            yield from machine.void_and_again("the source has a statement there now")
        commit_ts = machine.clock.next()
        made = tuple(replace(table, version=commit_ts) for table in made)
        before, count = machine.packer.own_bytes()
        state[Slot.POS] = end
        table = machine.packer.open_record(Part.WHOLE, Kind.DDL, commit_ts)
        table["length"] = len(before) + len(event)
        table["events"] = count + 1
        data = machine.entry(table, [before, bytes(event)])
        machine.end_noted()
        machine.known_tables = np.empty(0, np.int64)  # look at all table maps again: a table may have another shape
        yield FrameContent(data, machine.reading.at_end(end), None, made, 1, count + 1)

    def _ddl_inside(self, event: memoryview, made: tuple[TableSchema, ...]) -> Iterator[FrameContent]:
        """CREATE … SELECT: the DDL is a part of its transaction, alone in its entry all the same."""
        machine, state = self._machine, self._state
        yield from machine.flush()
        if machine.packer.open_events and (state[Slot.HAS_ROWS] or machine.open is not None):
            yield machine.cut()
        commit_ts, part = machine.next_part()
        made = tuple(replace(table, version=commit_ts) for table in made)
        before, count = machine.packer.own_bytes()
        yield from machine.count(event)
        table = machine.packer.open_record(part, Kind.DDL, commit_ts)
        table["length"] = len(before) + len(event)
        table["events"] = count + 1
        frame = machine.append_part(table, [before, bytes(event)], count + 1, made)
        machine.known_tables = np.empty(0, np.int64)
        yield frame

    def _alter_without_effect(self) -> bool:
        """MariaDB's ALTER in two phases: the statement that only starts it, or rolls it back, changes nothing."""
        machine, state = self._machine, self._state
        if state[Slot.PHASE] != Phase.STANDALONE or machine.need_fde().flavour is not Flavour.MARIADB:
            return False
        raw = bytes(machine.packer.out[int(state[Slot.TXN_OUT]) : int(state[Slot.OUT])])
        if len(raw) < HEADER_BYTES or raw[4] != EventType.MARIADB_GTID:
            return False
        return parse_mariadb_gtid(raw, machine.need_fde()).alter_without_effect
