"""Truncation: every entry after a position goes, for good, with one change of the ledger list.

(1) the open ledger is rolled, so that every entry is in a sealed ledger, and the slot is written once as a trial; (2) one transaction, which checks that no hold
was made meanwhile: the ledger of the position now ends at it (its footer counts no more; the index is rebuilt by
reading its frames, as after a failure), and the ledgers after it become tombstones; (3) the end that readers see goes
back, with the new number of truncations; (4) the files of the tombstones are removed. A crash before (2) leaves the log
as it was; after (2) the next open does the rest. No position is given twice: the next append goes into a later ledger.
Entries that stay keep their positions.

(2) also counts the truncation in the list, and every slot from (3) on says that count: a reader in another process, whose
list has a lower one, reads the list again before it hands out anything. A cursor may not stand beyond the position. What
counts is where it really is: a registration may be old. The cursor of another process may ack an entry in the moment in
which it goes; it is then set back when it looks again, or at its next open (records.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping

from penstock.errors import BadInput, Unavailable
from penstock.log.append.appender import Appender
from penstock.log.append.request import Terminated
from penstock.log.frames.file_header import FILE_HEADER_BYTES
from penstock.log.ledgers.catalog import HoldsChanged, LedgerCatalog
from penstock.log.ledgers.holds import Hold, Holds, read_holds
from penstock.log.ledgers.info import LedgerInfo, LedgerList
from penstock.log.ledgers.store import LedgerStore
from penstock.log.position import Position
from penstock.log.read.reader import LogReader
from penstock.metadata import MetadataStore

_ATTEMPTS = 20


class _ListChanged(Exception):
    """Another thread changed the list since the shorter one was made of it. Nothing was changed: make it again."""


class Truncator:
    """Truncates one log for its owner. `truncate` is called on the writer thread, in order with the appends.

    `cursors` says where the cursors really stand.
    """

    def __init__(
        self,
        log_name: str,
        *,
        metadata: MetadataStore,
        catalog: LedgerCatalog,
        store: LedgerStore,
        appender: Appender,
        reader: LogReader,
        cursors: Callable[[], Mapping[str, Position]],
    ) -> None:
        self._cursors = cursors
        self._log_name = log_name
        self._metadata = metadata
        self._catalog = catalog
        self._store = store
        self._appender = appender
        self._reader = reader

    def check(self, position: Position, *, own: Collection[str], force: bool) -> None:
        """Raises `BadInput` where the log has no such entry, or where a cursor or pin stands beyond it."""
        if position < self._appender.last:
            self._check_kept(position)
            if not force:
                self._check_holds(self._holds().holds, position, own, force)

    def truncate(self, position: Position, *, own: Collection[str], force: bool) -> set[int]:
        """Steps (1) to (3); the ledgers that went. `own`: pins of the caller, which moves them itself."""
        if position >= self._appender.last:
            return set()
        self._check_kept(position)
        self._check_holds(self._holds().holds, position, own, force)
        self._appender.ledgers.seal_all()
        self._appender.ledgers.check_end_is_writable()
        for _ in range(_ATTEMPTS):
            holds = self._holds()
            self._check_holds(holds.holds, position, own, force)
            before = self._catalog.list
            after = self._shortened(before, position)

            def shorten(listed: LedgerList, before: LedgerList = before, after: LedgerList = after) -> LedgerList:
                if listed is not before:  # by a trim, an offload or new properties: their change must stay
                    raise _ListChanged
                return after

            try:
                self._catalog.change(shorten, holds.unchanged)
            except (HoldsChanged, _ListChanged):
                continue  # a cursor or pin was made or moved back: check again where it stands
            self._appender.ledgers.rewind_end(_last(after))
            return {info.id for info in before.ledgers} - {info.id for info in after.ledgers}
        raise Unavailable(f"log {self._log_name}: it changes all the time", hint="try again")

    def _check_kept(self, position: Position) -> None:
        if self._catalog.list.terminated:
            raise Terminated(f"log {self._log_name} was terminated: its end stays where it is")
        for info in self._catalog.list.ledgers:
            if info.id == position.ledger_id and (not info.sealed or position.entry_id < info.entries):
                return
        raise BadInput(f"the log has no entry {position}", hint="give the position of an entry that it holds")

    def beyond(self, position: Position, own: Collection[str], holds: Collection[Hold] | None = None) -> list[Hold]:
        """The cursors and pins that stand after the position."""
        if holds is None:
            holds = self._holds().holds
        views = self._reader.ledgers()
        kept = views.up_to(position)
        return [
            hold for hold in holds if not (hold.kind == "pin" and hold.name in own) and views.up_to(hold.after) > kept
        ]

    def _holds(self) -> Holds:
        """All holds, with the cursors where they really stand."""
        holds = read_holds(self._metadata, self._log_name)
        cursors = self._cursors()
        moved = (
            hold._replace(after=max(hold.after, cursors.get(hold.name, hold.after))) if hold.kind == "cursor" else hold
            for hold in holds.holds
        )
        return holds._replace(holds=tuple(moved))

    def _check_holds(self, holds: Collection[Hold], position: Position, own: Collection[str], force: bool) -> None:
        beyond = [hold for hold in self.beyond(position, own, holds) if not (force and hold.kind == "pin")]
        if beyond:
            names = ", ".join(f"{hold.kind} {hold.name} ({hold.after})" for hold in beyond)
            raise BadInput(
                f"the log cannot be truncated to {position}: {names} stands beyond it",
                hint="move it back first, or truncate with force: it is moved to the new end",
            )

    def _shortened(self, listed: LedgerList, position: Position) -> LedgerList:
        kept: list[LedgerInfo] = []
        gone: list[int] = []
        for info in listed.ledgers:
            if not info.sealed or info.id < position.ledger_id:
                kept.append(info)
            elif info.id == position.ledger_id and position.entry_id >= 0:
                kept.append(self._sealed_at(info, position.entry_id + 1))
            else:
                gone.append(info.id)
        return dataclasses.replace(listed.without(gone), ledgers=tuple(kept), truncations=listed.truncations + 1)

    def _sealed_at(self, info: LedgerInfo, entries: int) -> LedgerInfo:
        if entries == info.entries:
            return info
        file = self._store.open(info)
        try:
            end = int(file.footer(info).offsets[entries])
        finally:
            file.close()
        assert end > FILE_HEADER_BYTES
        # `last_ms` stays: it may be the time of an entry that goes, but is never lower than the times of those that
        # stay.
        clipped = tuple((first, min(last, entries - 1)) for first, last in info.skipped if first < entries)
        messages = entries
        if info.messages != info.entries:
            stay = self._reader.scan(Position(info.id, 0), Position(info.id, entries - 1))
            messages += sum(frame.messages - 1 for frame in stay)  # a skipped entry counts as one
        return dataclasses.replace(
            info, entries=entries, frames_end=end, messages=messages, footer=False, skipped=clipped
        )


def _last(listed: LedgerList) -> Position:
    for info in reversed(listed.ledgers):
        if info.sealed and info.entries:
            return Position(info.id, info.entries - 1)
    return Position(listed.ledgers[-1].id, -1)
