"""Writes the checkpoints of a state beside its writers, and pins the log at the oldest checkpoint that is kept.

The order: (1) freeze the state under its lock, and note the last commit; (2) wait until that commit is durable; (3)
write the checkpoint; before the first one, identity.py writes down which log the directory belongs to; (4) move the
log's pin to the oldest checkpoint kept, and remove the pin of its start once enough checkpoints are kept. Because of
(2) no checkpoint holds what the log might still lose; because of (4) no trim removes a frame that a kept checkpoint
needs.

The thread is started by the first checkpoint that is due. A checkpoint that fails leaves the earlier ones in force, and
the next roll of the log tries again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import Closed, Corruption, Fenced, PenstockError, Unavailable
from penstock.log import Log, Pending, Position
from penstock.observe.metrics import METRICS
from penstock.state.checkpoints import identity
from penstock.state.checkpoints.recovery import DIRECTORY, PIN, START_PIN
from penstock.state.engines.engine import CheckpointInfo, Frozen, StateEngine
from penstock.threads import start_thread

CLOSE_SECONDS_MAX = 30.0  # a close does not hang on a disk that does not answer: everything durable is in the log

_logger = logging.getLogger(__name__)


class Moment(NamedTuple):
    """A frozen state: every commit up to `last`, and every frame up to `end`."""

    engine: StateEngine
    frozen: Frozen
    last: Pending[Any] | None
    end: Position


class Checkpointer:
    """Writes the checkpoints of one state.

    `freeze` takes the moment under the state's lock; `current` returns the engine in force; `heal` replaces that engine
    where its checkpoints prove to be damaged; `written` is called after each checkpoint, whoever asked for it.
    """

    def __init__(
        self,
        log: Log,
        freeze: Callable[[], Moment],
        current: Callable[[], StateEngine],
        kept: int,
        *,
        heal: Callable[[Corruption], None],
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._written = written
        self._freeze = freeze
        self._current = current
        self._heal = heal
        self._kept = kept
        self.turn = threading.Lock()  # one checkpoint at a time, from freeze to pin
        self.writing = threading.Lock()  # held while files are written: whoever replaces the engine takes it
        self._work = threading.Condition(threading.Lock())
        self._thread: threading.Thread | None = None
        self._wanted = False
        self._closing = False
        self._identified = False
        self.error: BaseException | None = None  # of the last attempt; None where it succeeded
        self.count = 0

    def wake(self) -> None:
        """Asks the thread for a checkpoint. Never waits."""
        with self._work:
            if self._closing:
                return
            self._wanted = True
            if self._thread is None:
                try:
                    self._thread = start_thread(self._run, f"state {self._log.directory}")
                except Unavailable as error:  # the next roll tries again
                    self.error = error
                    return
            self._work.notify()

    def checkpoint(self) -> CheckpointInfo | None:
        """Steps (1) to (4), now. None where a truncation or damage replaced the state meanwhile.

        A merge reads every byte of old runs, and may be the first to find damage in them. The state is then rebuilt,
        because every later checkpoint would fail too.
        """
        try:
            return self._checkpoint()
        except Corruption as error:
            self._heal(error)
            return self._checkpoint()

    def _checkpoint(self) -> CheckpointInfo | None:
        with self.turn:
            moment = self._freeze()
            position = moment.end if moment.last is None else max(moment.end, moment.last.result())
            with self.writing:
                if moment.engine is not self._current():
                    return None
                self._log.check_owner()
                if not self._identified:
                    identity.ensure(self._log.files, self._log.directory / DIRECTORY, self._log.uuid)
                    self._identified = True
                info = moment.engine.write(moment.frozen, position)
                self.move_pins(moment.engine)
            self.count += 1
            METRICS.state_checkpoint_seconds.observe(info.seconds)
            METRICS.state_checkpoint_bytes.inc(info.bytes_written)
        self._written()
        return info

    def move_pins(self, engine: StateEngine) -> None:
        """Step (4)."""
        kept = engine.checkpoints()
        pinned = self._log.pins()
        if not kept:
            return
        oldest = min(info.position for info in kept)
        wanted = Position(oldest.ledger_id, oldest.entry_id + 1)
        if pinned.get(PIN) != wanted:
            self._log.pin(PIN, wanted)
            self._log.trim_soon()
        if len(kept) >= self._kept and START_PIN in pinned:
            self._log.unpin(START_PIN)

    def close(self) -> bool:
        """Ends the thread, after the checkpoint under way. False where the disk of that one does not answer."""
        with self._work:
            self._closing = True
            self._work.notify()
        if self._thread is None or threading.current_thread() is self._thread:
            return True
        self._thread.join(CLOSE_SECONDS_MAX)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._work:
                while not self._wanted and not self._closing:
                    self._work.wait()
                if self._closing:
                    return
                self._wanted = False
            try:
                self.checkpoint()
                self.error = None
            except (Closed, Fenced) as error:
                self.error = error
                return
            except Exception as error:  # also one that nobody expected: without checkpoints the log is never trimmed
                self.error = error
                METRICS.state_checkpoint_failures.inc()
                unexpected = None if isinstance(error, PenstockError | OSError) else error
                _logger.warning(
                    "a checkpoint of the state of %s failed: %s",
                    self._log.directory,
                    error if unexpected is None else repr(error),
                    exc_info=unexpected,
                )
