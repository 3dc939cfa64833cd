"""XA groups: rows come when a group is prepared, and count when it commits, if it does.

A prepared group is appended as held entries, which no reader decodes. When it commits, these entries are read back and
appended again as a transaction of their own, so the order of the log is the order of the commits. When it is rolled
back, it is only forgotten. Open groups survive a restart of capture and of the server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from penstock.binlog.bodies import parse_xa_prepare
from penstock.binlog.errors import BadEvent
from penstock.capture.transactions.classify import Statement, Verb, xid_text
from penstock.capture.transactions.frame_content import Ending, FrameContent, Told
from penstock.capture.transactions.kernel import Phase, Slot
from penstock.entries.format import Kind, ParsedEntry, Part, encode_entry
from penstock.sources.position import HeldGroup, OpenTransaction

if TYPE_CHECKING:
    from penstock.capture.transactions.machine import TransactionMachine


class HeldGroups(Protocol):
    """The groups that are prepared, with their entries in the log."""

    def find(self, xid: str) -> HeldGroup | None: ...

    def read(self, group: HeldGroup) -> Iterator[ParsedEntry]:
        """The group's entries in order, one at a time."""
        ...


class XaGroups:
    """What XA events do to the machine's open transaction."""

    def __init__(self, machine: TransactionMachine, groups: HeldGroups) -> None:
        self._machine = machine
        self._groups = groups

    def statement(self, statement: Statement, event: memoryview, end: int) -> Iterator[FrameContent]:
        """XA START, END, COMMIT or ROLLBACK."""
        machine, state = self._machine, self._machine.packer.state
        verb = statement.verb
        if machine.inside and verb in (Verb.XA_COMMIT, Verb.XA_ROLLBACK):
            told = self._told(Ending.ROLLBACK, event, "") if verb is Verb.XA_ROLLBACK else None
            if state[Slot.SKIP]:
                yield from machine.ends_early(committed=verb is Verb.XA_COMMIT, one_phase=True)
            state[Slot.POS] = end
            yield from self._commit_at_once() if verb is Verb.XA_COMMIT else machine.roll_back()
            if told is not None:
                yield from machine.tell(told)
        elif verb is Verb.XA_COMMIT:
            yield from self._commit(statement.name, event, end)
        elif verb is Verb.XA_ROLLBACK:
            yield from self._roll_back(statement.name, event, end)
        else:
            if verb is Verb.XA_START:
                yield from self.start(statement.name)
            state[Slot.POS] = end
            yield from machine.count(event)

    def start(self, xid: str) -> Iterator[FrameContent]:
        """The rows of a group follow: after MySQL's GTID and XA START, or MariaDB's GTID."""
        machine, state = self._machine, self._machine.packer.state
        if state[Slot.PHASE] == Phase.OUTSIDE:
            yield from machine.begin_without_gtid(Phase.PREPARING)
        known = machine.open  # the parts before a restart tell, too
        if machine.one_phase or (known is not None and not known.held):
            state[Slot.PHASE] = Phase.INSIDE
            return
        state[Slot.PHASE] = Phase.PREPARING
        machine.xid = xid

    def prepared(self, event: memoryview, end: int) -> Iterator[FrameContent]:
        machine, packer, state = self._machine, self._machine.packer, self._machine.packer.state
        prepare = parse_xa_prepare(event, machine.need_fde())
        if not machine.inside:
            raise BadEvent("it cannot stand here: no XA group is open", event_type=event[4])
        if state[Slot.SKIP]:
            yield from machine.ends_early(one_phase=prepare.one_phase)
        state[Slot.POS] = end
        if prepare.one_phase:
            yield from self._commit_at_once()
            return
        yield from machine.flush()
        known = machine.open
        data = []
        count = entries = 0
        commit_ts = known.commit_ts if known else machine.clock.next()
        if known is not None or state[Slot.HAS_ROWS]:
            table = packer.open_record(Part.LAST if known else Part.WHOLE, Kind.HELD, commit_ts)
            data = machine.entry(table, [packer.open_bytes()])
            count = int(table["events"][0])
            entries = 1 + (known.entries if known else 0)
        xid = xid_text(prepare.xid)
        group = HeldGroup(xid, commit_ts, entries, known.after if known else "", machine.reading.file, end)
        told = self._told(Ending.XA_PREPARE, event, xid)
        machine.end_noted()
        yield FrameContent(data, machine.reading.at_end(end), None, events=count, held=group, told=told)

    def _commit_at_once(self) -> Iterator[FrameContent]:
        """The group commits without having been prepared: an ordinary transaction."""
        machine = self._machine
        known = machine.open
        if known is not None and known.held:
            # Its parts are in the log as held ones. They are taken back, and read again as what they are.
            again = machine.hindsight(one_phase=True)
            yield from machine.void_and_again("an XA group that is not held after all", again)
        yield from machine.commit()

    def _told(self, ending: Ending, event: memoryview, xid: str) -> Told | None:
        return self._machine.told(ending, event, xid=xid) if self._machine.tells else None

    def _roll_back(self, xid: str, event: memoryview, end: int) -> Iterator[FrameContent]:
        machine = self._machine
        yield from self._completing()
        if machine.open is not None:
            yield from machine.void_and_again("the source rolls an XA group back there now")
        told = self._told(Ending.XA_ROLLBACK, event, xid)
        machine.packer.state[Slot.POS] = end
        machine.end_noted()
        released = xid if self._groups.find(xid) is not None else ""
        yield FrameContent([], machine.reading.at_end(end), None, released=released, told=told)

    def _commit(self, xid: str, event: memoryview, end: int) -> Iterator[FrameContent]:
        """Appends the group again, as a transaction that ends at the XA COMMIT."""
        machine, reading, state = self._machine, self._machine.reading, self._machine.packer.state
        yield from self._completing()
        group = self._groups.find(xid)
        start = int(state[Slot.TXN_POS])
        told = self._told(Ending.XA_COMMIT, event, xid)
        state[Slot.POS] = end
        known = machine.open
        if known is not None and (group is None or known.copies != xid):
            yield from machine.void_and_again("the source commits an XA group there now")
        if group is None:
            # Every group that was prepared since the log's start is known. The rows of this one lie before the start.
            machine.end_noted()
            yield FrameContent([], reading.at_end(end), None, missed=xid, told=told)
            return
        commit_ts = known.commit_ts if known else machine.clock.next_open()
        done = known.entries if known else 0
        if not group.entries:
            machine.end_noted()
            yield FrameContent([], reading.at_end(end), None, released=xid, told=told)
            return
        for number, entry in enumerate(self._groups.read(group)):
            if number < done:
                continue
            last = number + 1 == group.entries
            part = Part.LAST if last else Part.MIDDLE if number else Part.FIRST
            table = machine.packer.open_record(Part.WHOLE if group.entries == 1 else part, Kind.ROWS, commit_ts)
            table["length"] = len(entry.events)
            table["events"] = count = int(entry.transactions["events"].sum())
            header = replace(
                entry.header, source=reading.emitted.source, files=(reading.file,), tags=tuple(reading.tags)
            )
            data = encode_entry(header, table, [entry.events.data])
            if last:
                machine.end_noted()
                at_end = reading.at_end(end)
                yield FrameContent(data, at_end, None, transactions=1, events=count, released=xid, told=told)
                return
            gtid = machine.packer.gtid.tobytes().hex()
            position = reading.stamp() if number else reading.at_start(start)
            machine.open = OpenTransaction(
                commit_ts, gtid, reading.file, start, 0, 0, end, number + 1, position.source, copies=xid
            )
            yield FrameContent(data, position, machine.open, events=count)

    def _completing(self) -> Iterator[FrameContent]:
        """Before a group is committed or rolled back: everything earlier goes first, and the transaction has begun."""
        machine, state = self._machine, self._machine.packer.state
        yield from machine.flush()
        if state[Slot.PHASE] == Phase.OUTSIDE:
            yield from machine.begin_without_gtid(Phase.STANDALONE)
