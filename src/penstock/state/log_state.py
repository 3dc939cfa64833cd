"""The state of a managed log: recovered from a checkpoint and the frames after it, checkpointed beside its writers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from penstock.arguments import check_callable
from penstock.clock import Clock
from penstock.errors import BadInput, Closed, Corruption, PenstockError, StorageFailed, Unavailable, fresh
from penstock.files import Buffer
from penstock.log import Log, Pending, Position
from penstock.log.position import check_position
from penstock.state.changes import Change
from penstock.state.checkpoints.checkpointer import Checkpointer, Moment
from penstock.state.checkpoints.recovery import (
    PIN,
    START_PIN,
    OnProgress,
    ProgressReporter,
    StateLocation,
    StateLost,
    recover,
    replay,
)
from penstock.state.checkpoints.scrubber import Scrubber
from penstock.state.engines.engine import CheckpointInfo, Finding, StateEngine
from penstock.state.engines.refusals import typed_refusals
from penstock.state.metrics import forget_state
from penstock.state.reader import StateReader
from penstock.state.settings import StateSettings
from penstock.state.state import BucketState
from penstock.state.types.registry import REGISTRY_NAMESPACE, Registry
from penstock.threads import start_thread

_logger = logging.getLogger(__name__)

_CLOSE_BYTES_MIN = 256 << 10  # a smaller tail is replayed faster than a checkpoint of it is written
_HEAL_SECONDS_MAX = 30.0  # a thread that cannot get the state's lock for so long gives up rebuilding the state


class LogState(BucketState, of=Log):
    """See the module."""

    _log: Log
    _ready = False  # True at the end of the constructor: a ledger may be sealed while it runs

    @classmethod
    def _open(cls, log: Log, settings: StateSettings, progress: OnProgress | None, clock: Clock | None) -> Self:
        return cls(log, settings, progress, clock or log.clock)

    def __init__(self, log: Log, settings: StateSettings, progress: OnProgress | None, clock: Clock) -> None:
        log = self._log = log.for_attached()  # lives until the log is closed, whoever of its openers goes first
        self._settings = settings
        with typed_refusals(log.directory):
            reader = log.reader()
        self._location = StateLocation(reader, log.files, clock, settings, read_only=False)
        log.attached.add("state", self)
        try:
            first = self._location.reader.first
            recovered = recover(self._location, log.end(), progress)
            super().__init__(recovered.engine, recovered.registry, clock)
            self.recovered_by = recovered.way
            # Commits that may not be durable yet, with their encoded changes. A state that is rebuilt from the log
            # applies them again, because the log cannot give them yet.
            self._unsettled: deque[tuple[Pending[Any], bytes]] = deque()
            self._last: Pending[Any] | None = None
            self._changed = 0
            self._closing = threading.RLock()  # of one close after the other: who closes it again waits for the first
            self._truncating = False
            self._truncated = threading.Condition(self._lock)
            self._checkpointer = Checkpointer(
                log,
                self._freeze,
                lambda: self.engine,
                settings.checkpoints_kept,
                heal=self.heal,
                written=self._start_scrubs,
            )
            self._scrubber = Scrubber(
                log, self._checkpointer.writing, lambda: self.engine, settings, clock, heal=self.heal
            )
            pinned = log.pins()
            self._pinned = PIN in pinned or START_PIN in pinned
            if len(self.registry) and (recovered.engine.position is None or not self._pinned):
                self._keep_replay(first)
        except BaseException:
            log.attached.remove(self)
            raise
        self._ready = True
        if self.engine.checkpoints():
            self._scrubber.start()

    def rolled(self) -> None:
        """Called by the log when a ledger was sealed."""
        registry = self.registry  # no registry any more, where another thread closed the state in this moment
        if self._ready and self._settings.checkpoint_at_roll and isinstance(registry, Registry) and len(registry):
            self._checkpointer.wake()

    def checkpoint(self) -> CheckpointInfo | None:
        self._refuse_callback()
        with self._lock:
            self._check()
            if not len(self.registry) or not self._pinned:
                return None
        return self._checkpointer.checkpoint()

    def scrub(self) -> list[Finding]:
        with self._lock:
            self._check()
        return self._scrubber.scrub()

    def recover(self, to: Position, progress: OnProgress | None = None) -> StateReader:
        check_position("to", to)
        check_callable("progress", progress, optional=True)
        with self._lock:
            self._check()
        return StateReader.open(self._log.reader(), at=to, settings=self._settings, progress=progress)

    def truncate(self, position: Position, *, force: bool = False) -> None:
        """(1) checks that a checkpoint at or below `position`, or the whole log, can give the state there; (2) drops
        the checkpoints above it, durably; (3) truncates the log; (4) applies the frames after the newest one left.

        A crash after (2) leaves an older checkpoint and the whole log: nothing is lost. After (3) it is truncated.
        """
        check_position("position", position)
        self._refuse_callback()
        with self._checkpointer.turn:
            with self._lock:
                self._check()
                left = [info.position for info in self.engine.checkpoints() if info.position <= position]
                if not left:
                    if START_PIN not in self._log.pins() and not self._location.reader.complete:
                        raise StateLost(
                            f"the state at {position} cannot be had: the oldest checkpoint is newer, and the log's first"
                            " ledgers were trimmed",
                            hint="nothing was changed",
                        )
                    self._pin_start()
                self._log.check_truncate(position, own=(PIN, START_PIN), force=force)
                base = self.engine.drop_after(position)
                self._truncating = True
            # Without the lock: the log's thread may be in a callback that wants it, and truncates only after that one.
            try:
                if base is None:
                    self._log.unpin(PIN)
                self._log.truncate(position, own=(PIN, START_PIN), force=force)
            except BaseException:  # the log refused: its frames bring back all of the state
                with contextlib.suppress(PenstockError):  # the caller gets the log's own error
                    self._end_truncation(base)
                raise
            self._end_truncation(base, truncated=True)

    def _end_truncation(self, base: Position | None, *, truncated: bool = False) -> None:
        with self._lock:
            if truncated:
                self._unlogged, self._last = [], None
                self._unsettled.clear()  # appended before the truncation: the log has them, or they are gone
            try:
                self._read_again(base)
            finally:
                self._truncating = False
                self._truncated.notify_all()

    def _await_truncation(self) -> None:
        while self._truncating:
            if self._log.is_calling_back():
                raise Unavailable(f"the state of {self._log.directory} is being truncated", hint="try again after that")
            self._truncated.wait()

    def _refuse_callback(self) -> None:
        """For what waits until commits are durable."""
        if self._log.is_calling_back():
            raise BadInput(
                f"the state of {self._log.directory}: this waits for the thread that it is called on, in a callback of a commit",
                hint="hand it to another thread",
            )

    def _read_again(self, base: Position | None) -> None:
        """Applies the frames after `base`, to which the engine went back, and commits not durable yet. Lock held."""
        try:
            reader, end = self._location.reader, self._log.end()
            start = reader.first if base is None else reader.next(base)
            replay(reader, self.engine, start, end, ProgressReporter(None, time.perf_counter()))
            self._replace(self.engine, self._apply_unsettled(self.engine, end))
        except BaseException as error:
            self._broken = StorageFailed(f"the state could not be read again: {error}", hint="open log and state again")
            raise

    def _apply_unsettled(self, engine: StateEngine, end: Position) -> Registry:
        """Applies the commits that are not among the frames up to `end`; returns the registry. Lock held."""
        for pending, encoded in self._unsettled:
            if not pending.done() or (pending.exception(0) is None and pending.result() > end):
                engine.apply_encoded(encoded)
        with engine.create_snapshot() as snapshot:
            registry = Registry(snapshot.iterate(REGISTRY_NAMESPACE))
        for change in self._unlogged:
            registry.load(change.value)
        return registry

    def heal(self, error: Corruption) -> None:
        """Rebuilds the state after a checkpoint proved to be damaged: from an older checkpoint or the whole log, and
        from the commits that are not durable yet."""
        damaged = self.engine
        if not self._lock.acquire(timeout=_HEAL_SECONDS_MAX):
            raise error  # whoever holds the lock may be waiting for this thread; the next read tries again
        try:
            if self.engine is not damaged:
                return  # another thread has rebuilt the state meanwhile
            self._check()
            with self._checkpointer.writing:
                with contextlib.suppress(PenstockError, OSError):
                    damaged.flush()  # its background merge must end before another engine uses the directory
                first, end = self._location.reader.first, self._log.end()
                engine = recover(self._location, end, verify=True).engine
                self._replace(engine, self._apply_unsettled(engine, end))
            if engine.position is None:
                self._keep_replay(first)
            damaged.close()
        finally:
            self._lock.release()

    def close(self) -> None:
        """Waits for a checkpoint under way, and writes a last one where much has changed. The log stays open. In a callback
        of a commit it returns at once, and the state closes behind it: a checkpoint waits for commits, and they for the
        callback. Raises `Unavailable` there where the system gives no thread for it: then the state stays open."""
        if self._forked:
            return
        if self._log.is_calling_back():
            start_thread(self._close_behind, f"close of state {self._log.directory}", daemon=False)
            return
        with self._closing:
            with self._lock:
                if self._closed:
                    return
                self._await_truncation()
            try:
                self._close_all()
            finally:
                # Last: until then nobody else may open the directory of the checkpoints.
                self._log.attached.remove(self)

    def _close_behind(self) -> None:
        try:
            self.close()
        except Exception:
            _logger.exception("the close of the state of %s failed", self._log.directory)

    def _close_all(self) -> None:
        scrubbed, written = self._scrubber.close(), self._checkpointer.close()
        if not (scrubbed and written):
            with self._lock:
                self._broken = self._broken or Closed("the state was closed while its disk did not answer")
            self.engine.abandon()
            forget_state(self)  # the engine stays open: a thread still uses its files
            return
        if self._broken is None and self._pinned and self.engine.changed_bytes >= _CLOSE_BYTES_MIN:
            try:
                self.checkpoint()
            except (PenstockError, OSError) as error:  # nothing is lost: the next open replays the log instead
                self._checkpointer.error = error
        super().close()

    # -- inside --------------------------------------------------------------------------------------------------

    def _before_commit(self, change: Change) -> None:
        if not self._pinned and (change or self._unlogged):
            self._pin_start()
        self._log.wait_for_room()

    def _append(self, data: Buffer | Sequence[Buffer], encoded: bytes) -> Pending[Any]:
        if encoded and not self._pinned:  # another thread made a store while this commit waited for room
            self._pin_start()
        self._settle()
        pending = self._log.append(data, encoded, wait=False, after=self._last, encoded=True)
        self._last = pending
        if encoded:
            self._unsettled.append((pending, encoded))
        self._changed += len(encoded)
        limit = self._settings.checkpoint_bytes
        if limit is not None and self._changed >= limit:
            self._changed = 0
            self._checkpointer.wake()
        return pending

    def _settle(self) -> None:
        """Forgets durable commits. Raises where one failed: memory stays ahead of the log. Lock held."""
        unsettled = self._unsettled
        while unsettled and unsettled[0][0].done():
            error = unsettled.popleft()[0].exception(0)
            if error is not None:
                self._broken = StorageFailed(
                    f"an earlier commit failed, so this state is ahead of its log: {error}", hint="open both again"
                )
                raise fresh(self._broken) from error

    def _start_scrubs(self) -> None:
        self._scrubber.start()

    def _freeze(self) -> Moment:
        with self._lock:
            self._check()
            self._settle()
            self._changed = 0
            return Moment(self.engine, self.engine.freeze(), self._last, self._log.end())

    def _pin_start(self, first: Position | None = None) -> None:
        """Called before the first change is logged: from here on no trim removes a frame that a whole replay needs."""
        if START_PIN not in self._log.pins():
            self._log.pin(START_PIN, first or self._location.reader.first)
        self._pinned = True

    def _keep_replay(self, first: Position) -> None:
        """No checkpoint holds what was replayed from `first` on. The log is pinned there; where a trim has just passed
        that point, a checkpoint is written instead."""
        try:
            self._pin_start(first)
        except BadInput:  # trimmed meanwhile
            self._pinned = True
            self._checkpointer.wake()
