"""The cursors of one log in this process: each is opened once, and all are closed together."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from pyroaring import BitMap

from penstock.arguments import check_amount, check_callable, check_count, check_name, check_names, check_type
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, Closed, Corruption, Fenced, PenstockError, StorageFailed, Unavailable
from penstock.files import REAL_FILES, Files
from penstock.log.cursors.acked import Acked
from penstock.log.cursors.cursor import Cursor
from penstock.log.cursors.idle import IdleTimes
from penstock.log.cursors.opening import Start, check_start, delete_durable
from penstock.log.cursors.records import CursorState, replay
from penstock.log.cursors.registry import Registered, find, registered
from penstock.log.pending import Pending
from penstock.log.position import Position, check_position
from penstock.log.read.reader import LogReader
from penstock.log.read.tail import Tail
from penstock.log.records.reading import read_records

CURSORS_NAME = "cursors"
_LEFT = -1


class CursorInfo(NamedTuple):
    """A durable cursor as the metadata store knows it. `mark_delete` may be older than the cursor's own."""

    name: str
    mark_delete: Position
    open_here: bool
    damage: str = ""  # what was wrong with its records when it last fell back to its registration


class CursorTable:
    """Thread-safe. Serves the owner of a log and a process that only reads it."""

    def __init__(
        self,
        reader: LogReader,
        directory: Path | None = None,
        files: Files = REAL_FILES,
        clock: Clock = SYSTEM_CLOCK,
        *,
        tail: Tail | None = None,
        on_moved: Callable[[], None] = lambda: None,
    ) -> None:
        self._reader = reader
        self._directory = directory or reader.directory / CURSORS_NAME
        self._files = files
        self._clock = clock
        self._tail = tail
        self._on_moved = on_moved
        self._lock = threading.Lock()
        self._cursors: dict[str, Pending[Cursor]] = {}
        self._openers: dict[str, int] = {}  # to how many a cursor of `_cursors` was given; _LEFT once nobody has it
        self._in_memory: set[Cursor] = set()
        self._idle = IdleTimes(reader.metadata, reader.name, clock)
        self._expiring = threading.Lock()  # for `_idle`
        self._closed = False

    def open(self, name: str, start: Start = "earliest", *, durable: bool = True) -> Cursor:
        """The cursor of that name, made where it is new. Idempotent: asking again returns the same object.

        With `durable` off, each call makes a new cursor. Raises as `Cursor.open`.
        """
        check_start(start)
        if not durable:
            cursor = Cursor.in_memory(self._reader, name, start, clock=self._clock, tail=self._tail)
            self._keep(cursor)
            return cursor
        check_name("a cursor", name)
        while True:
            with self._lock:
                self._check_open()
                opening = self._cursors.get(name)
                ours = opening is None
                if opening is None:
                    opening = self._cursors[name] = Pending()
            if ours:
                self._open(name, start, opening)
            cursor = opening.result()
            with self._lock:
                openers = self._openers.get(name, 0)
                if not cursor.failed and openers != _LEFT:
                    self._openers[name] = openers + 1
                    return cursor
            with contextlib.suppress(Exception):  # its other users get the error that stopped it from their own calls
                cursor.close()

    def infos(self) -> list[CursorInfo]:
        """Every durable cursor of the log, whoever owns it; by name."""
        self._check_open()
        with self._lock:
            here = set(self._cursors)
        return [
            CursorInfo(cursor.name, cursor.mark_delete, cursor.name in here, cursor.damage)
            for cursor in registered(self._reader.metadata, self._reader.name)
            if not cursor.deleting
        ]

    def opened(self) -> list[Cursor]:
        """The cursors that are open in this process, for statistics."""
        self._check_open()
        with self._lock:
            waiting = list(self._cursors.values())
            in_memory = list(self._in_memory)
        return [opening.result() for opening in waiting if opening.done() and not opening.exception(0)] + in_memory

    def positions(self) -> dict[str, Position]:
        """Where every durable cursor really stands, whoever owns it: those open here with the acks on their way, the
        others as their records say, because a registration may be old."""
        here = {cursor.name: cursor for cursor in self.opened() if cursor.durable}
        positions = {}
        for known in registered(self._reader.metadata, self._reader.name):
            if known.name in here:
                positions[known.name] = here[known.name].taken_mark_delete
            else:
                state = self._recorded(known)
                positions[known.name] = state.acked.mark_delete if state is not None else known.mark_delete
        return positions

    def reset(
        self, names: Collection[str], position: Position, check_owner: Callable[[], object] = lambda: None
    ) -> None:
        """Makes `position` the next entry of each of these cursors, durably. One that nobody has open here is closed again:
        its own process must be able to open it.

        Raises `Unavailable` while another process owns one of them. `check_owner` is called before any cursor is opened, and
        again before any is moved: where it raises, nothing was moved. (Opening a cursor takes it from its owner, so whoever
        opens it in between cannot be overruled.)
        """
        check_names("names", names)
        check_callable("check_owner", check_owner)
        for name in names:  # before any of them is touched
            check_name("a cursor", name)
        check_position("position", position)
        self._check_open()
        check_owner()
        with contextlib.ExitStack() as opened:
            cursors: list[Cursor] = []
            for name in names:  # all of them, before any is moved
                cursors.append(self._open_to_move(name))
                opened.callback(cursors[-1].withdraw)  # stays open where somebody else has it, or came for it meanwhile
            check_owner()
            for cursor in cursors:
                cursor.reset(position).result()

    def _open_to_move(self, name: str) -> Cursor:
        try:
            return self.open(name)
        except Unavailable as error:
            raise Unavailable(
                f"cursor {name} of log {self._reader.name} cannot be moved: another process has it open",
                hint="nothing was changed; close it there, or move it back there, then try again",
            ) from error

    def lacking(self, ledger_id: int, entries: BitMap) -> dict[str, int]:
        """How many of these entries of a ledger each durable cursor has not acked, whoever owns it; those that lack none
        are left out. A cursor whose records are damaged counts from its registration."""
        check_count("ledger_id", ledger_id)
        check_type("entries", entries, BitMap)
        here = {cursor.name: cursor for cursor in self.opened() if cursor.durable}
        lacking = {}
        for known in registered(self._reader.metadata, self._reader.name):
            if known.name in here:
                wanted = here[known.name].unacked(ledger_id, entries.max())
            else:
                state = self._recorded(known)
                acked = state.acked if state is not None else Acked(known.mark_delete)
                wanted = acked.unacked(ledger_id, 0, entries.max())
            if count := len(wanted & entries):
                lacking[known.name] = count
        return lacking

    def follow_log(self) -> None:
        """The log was truncated, or entries of it were skipped: the cursors that are open here learn of it."""
        for cursor in self.opened():
            cursor.follow_log()

    def delete(self, name: str) -> None:
        """Removes the cursor for good; one that is open here is closed. What a crash leaves is finished later.

        Raises `BadInput` where there is none, `Unavailable` while another process owns it.
        """
        check_name("a cursor", name)
        self._check_open()
        with self._lock:
            opening = self._cursors.get(name)
        if opening is not None:
            with contextlib.suppress(Exception):  # a cursor that cannot be opened or closed can still be deleted
                opening.result().close()
        known = find(self._reader.metadata, self._reader.name, name)
        if known is None or not delete_durable(self._reader, self._where(known), name, self._files):
            raise BadInput(f"log {self._reader.name} has no cursor {name}")
        self._on_moved()

    def expire(self, inactive_seconds: float) -> list[str]:
        """Deletes the cursors that nobody has open and that neither read nor acked for so long; their names. Raises
        what keeps one of them from being deleted, after the others.

        Time counts as far as a process saw it go by (idle.py): a step of the clock deletes nothing. Activity by reads alone counts once the cursor was closed: only then is it written.
        """
        check_amount("inactive_seconds", inactive_seconds)
        self._check_open()
        with self._lock:
            here = set(self._cursors)
        known = {cursor.name: cursor for cursor in registered(self._reader.metadata, self._reader.name)}
        gone = []
        failed: StorageFailed | Corruption | None = None  # of one cursor: the others do not wait for it
        with self._expiring:
            for name, cursor in known.items():
                if name in here:
                    self._idle.used(name)
                    continue
                if not cursor.deleting and not self._is_unused(cursor, inactive_seconds):
                    continue
                try:
                    if delete_durable(self._reader, self._where(cursor), name, self._files, unchanged=cursor):
                        gone.append(name)
                except Unavailable:
                    continue  # opened meanwhile, here or by another process
                except (StorageFailed, Corruption) as error:
                    failed = failed or error
            self._idle.save(known.keys() - set(gone))
        if gone:
            self._on_moved()
        if failed is not None:
            raise failed
        return gone

    def close(self) -> None:
        """Closes every cursor. Raises the first thing that went wrong, after all are closed."""
        with self._lock:
            self._closed = True
            waiting = list(self._cursors.values())
            in_memory = list(self._in_memory)
        failed: Exception | None = None
        for opening in waiting:
            try:
                if opening.exception() is None:
                    opening.result().close()
            except Fenced:
                pass  # the cursor's new owner has everything that was acknowledged
            except Exception as error:
                failed = failed or error
        for cursor in in_memory:
            cursor.close()
        with self._expiring:
            self._idle.save_at_close()
        if failed is not None:
            raise failed

    def _open(self, name: str, start: Start, opening: Pending[Cursor]) -> None:
        try:
            known = find(self._reader.metadata, self._reader.name, name)
            cursor = Cursor.open(
                self._reader,
                self._where(known),
                name,
                start,
                self._files,
                clock=self._clock,
                tail=self._tail,
                on_moved=self._on_moved,
            )
        except BaseException as error:
            self._drop(name, opening)
            opening.fail(error)
            return
        cursor.call_at_close(lambda: self._drop(name, opening))
        cursor.withdraw = lambda: self._withdraw(cursor, opening)
        opening.complete(cursor)

    def _withdraw(self, cursor: Cursor, opening: Pending[Cursor]) -> None:
        with self._lock:
            if self._cursors.get(cursor.name) is not opening:
                return  # it was closed; one that was opened since is not this opener's
            openers = self._openers.get(cursor.name, 0) - 1
            self._openers[cursor.name] = openers if openers > 0 else _LEFT
        if openers <= 0:
            cursor.close()

    def _is_unused(self, known: Registered, inactive_seconds: float) -> bool:
        """Whether the cursor did nothing for so long. Its records are read where that may be: a registration may be old."""
        seconds = self._idle.seconds(known.name)
        if seconds is not None and seconds < inactive_seconds:
            return False
        state = self._recorded(known)
        if state is None or not state.active_ms:
            return False
        return self._idle.look(known.name, f"{state.active_ms}:{state.records}", state.active_ms) >= inactive_seconds

    def _recorded(self, known: Registered) -> CursorState | None:
        """What the cursor's records say, read without owning it, because opening it would change them. None where they
        are damaged: opening the cursor will say what is wrong with it."""
        try:
            records = read_records(self._files, self._where(known), known.name)
            return replay(records, self._reader.uuid, self._reader.ledgers())
        except (PenstockError, OSError):
            return None

    def _keep(self, cursor: Cursor) -> None:
        with self._lock:
            self._check_open()
            self._in_memory.add(cursor)
        cursor.call_at_close(lambda: self._in_memory.discard(cursor))

    def _drop(self, name: str, opening: Pending[Cursor]) -> None:
        with self._lock:
            if self._cursors.get(name) is opening:
                del self._cursors[name]
                self._openers.pop(name, None)

    def _where(self, known: Registered | None) -> Path:
        if known is None:
            return self._directory
        return (self._reader.directory / known.directory).resolve()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"log {self._reader.name} is closed")
