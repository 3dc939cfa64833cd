"""The capture loop: from a source into the log, starting where the log's state says that the last run stopped.

1. Open the log and its state.
2. For a new log, ask the source where to begin, and make that durable before anything is read.
3. Read, cut into transactions, append.
4. When the connection is lost, continue from the last frame, after pauses that grow.
5. While there is no room for more of the log (room.py), read nothing.
6. Between transactions, append chunks of loads (capture/load), and answer the requests of the run: the log's only writer
   resumes parked tables, and begins backfills.
7. To stop, flush the complete transactions, wait until they are durable, and close. An event that ends the flow does
   not keep back what came before it.

A kill at any moment loses nothing: the next start does 1 and 3 again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.capture import resumption
from penstock.capture.load import request as backfill_request
from penstock.capture.load.beginning import LoadBeginnings
from penstock.capture.load.initial_load import InitialLoad
from penstock.capture.recorder import Recorder
from penstock.capture.resumption import Resumption, followed_schemas
from penstock.capture.room import Room
from penstock.capture.transactions.cutter import ENTRY_BYTES, TransactionCutter
from penstock.capture.transactions.frame_content import FrameContent
from penstock.capture.transactions.machine import Hindsight, ReadAgain, State
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.commit_ts import CommitClock, milliseconds_of
from penstock.entries.format import EVENTS_BYTES_MAX
from penstock.entries.xa_groups import xa_facts
from penstock.errors import BadInput, Corruption, PenstockError, Transient, Unavailable
from penstock.log import Log, LogSettings
from penstock.process import Event, Requests
from penstock.sources.load import Loadable
from penstock.sources.position import SourcePosition
from penstock.sources.settings import LoadScope, SnapshotSettings, Tables
from penstock.sources.source import Chunk, Source, SourceError
from penstock.state import BucketState, StateSettings

FLUSH_SECONDS = 0.05  # the longest that a complete transaction waits for others to share its entry
PROGRESS_SECONDS = 1.0
PAUSED_SECONDS = 0.05  # between two looks for room
RETRY_SECONDS_FIRST = 0.2
RETRY_SECONDS_MAX = 10.0
PARKED_SHOWN_MAX = 50  # of the parked tables: each report names so many
READ_AGAIN_MAX = 8  # of one transaction, in a row: once is enough, and each one fills the log
RETRIES_MAX = 12  # in a row, without a frame between them: about a minute and a half

_logger = logging.getLogger(__name__)

Report = Callable[[dict[str, Any]], None]


class _SourceLost(Exception):
    """The connection to the source is gone, with the source's own error."""

    def __init__(self, error: Transient) -> None:
        super().__init__(error.message)
        self.error = error


class Capture:
    """One source into one log: until stopped, or until the place where the source ended when `run` was called."""

    def __init__(
        self,
        log: Log,
        source: Source,
        *,
        tables: Tables | None = None,
        snapshot: SnapshotSettings | None = None,
        scope: LoadScope | None = None,
        clock: Clock = SYSTEM_CLOCK,
        stop: threading.Event | None = None,
        report: Report = lambda event: None,
        requests: Requests | None = None,
        room: Room | None = None,
        entry_bytes: int = ENTRY_BYTES,
        events_bytes_max: int = EVENTS_BYTES_MAX,
        state_settings: StateSettings | None = None,
    ) -> None:
        self._log = log
        self._source = source
        self._clock = clock
        self._stop = stop or threading.Event()
        self._report = report
        self._requests = requests
        self._room = room
        self._paused = ""  # why nothing is read
        self._entry_bytes = entry_bytes
        self._events_bytes_max = events_bytes_max
        self._state = BucketState.open(log, state_settings)
        if room is not None:
            room.checkpoint = self._checkpoint
        self._schemas = followed_schemas(self._state, tables)
        self._recorder = Recorder(log, self._state, self._schemas, clock)
        self._commit_clock = CommitClock(self._recorder.commit_ts_min, clock)
        self._tables = tables or Tables()
        self._snapshot = snapshot or SnapshotSettings()
        self._scope = scope
        self._load: InitialLoad | None = None
        self._beginnings: LoadBeginnings | None = None
        self._chosen = False  # tables that the last start did not choose are being loaded
        self._waiting_since: float | None = None
        self._reported = clock.monotonic()
        self._idle = True
        self._heard_ms: int | None = None  # when the source sent something last

    def run(self, *, until_now: bool = False) -> bool:
        """True if the end was reached: the source's end at this call with `until_now`, or the end of a source that has
        one. False if it was stopped.
        """
        position = self._recorder.position or self._begin()
        self._load = self._open_load()
        try:
            return self._run(position, until_now=until_now)
        finally:
            if self._load is not None:
                self._load.close()

    def _run(self, position: SourcePosition, *, until_now: bool) -> bool:
        target = self._source.end() if until_now else None
        if target is not None and position.is_beyond(target) and not (position.gtid and target.gtid):
            raise SourceError(
                f"the source ends at {target}, and the log was filled up to {position}. Nothing was skipped.",
                hint="was RESET MASTER run, or is this another server? Start again with a new state_dir",
            )
        self._report(
            {
                "event": Event.READY,
                "position": asdict(position),
                "parked": self._parked(),
                "xa": self._xa(),
                "load": self._load and self._load.facts(),
            }
        )
        failures = 0
        hindsight: Hindsight | None = None
        repeated = done = 0
        while True:
            frames = self._recorder.events
            try:
                position = self._source.resume(position)
                self._schemas.compare_names(self._source.lower_case_table_names)
                self._choose_tables()
            except Transient as error:
                failures += 1
                self._wait_before_retry(error, failures)
                if self._stop.is_set():
                    return False
                continue
            cutter = TransactionCutter(
                position,
                self._schemas,
                self._commit_clock,
                self._recorder.groups,
                open_transaction=self._recorder.open,
                hindsight=hindsight,
                entry_bytes=self._entry_bytes,
                events_bytes_max=self._events_bytes_max,
            )
            try:
                reached = self._read(cutter, position, target)
            except ReadAgain as again:
                _logger.info("%s", again)
                hindsight = again.hindsight
                repeated, done = repeated + 1 if self._recorder.transactions == done else 1, self._recorder.transactions
                if repeated > READ_AGAIN_MAX:
                    raise Corruption(
                        f"the transaction after {position} is void again and again: {again.message}"
                    ) from None
                position = cutter.passed
                continue
            except _SourceLost as lost:
                failures = 1 if self._recorder.events > frames else failures + 1
                self._flush(cutter)
                self._wait_before_retry(lost.error, failures)
                if self._stop.is_set():
                    reached = False
                else:
                    position = cutter.passed
                    continue
            except PenstockError:
                self._keep_finished(cutter)
                raise
            self._finish(cutter)
            if reached:
                self._say_caught_up()
            return reached

    def _begin(self) -> SourcePosition:
        begun = self._source.begin(self._commit_clock.next())
        position = replace(begun.position, commit_ts=self._commit_clock.last)
        self._recorder.append(FrameContent([], position, schemas=begun.schemas, loads=begun.loads, scope=self._scope))
        self._recorder.finish()
        return position

    def _open_load(self) -> InitialLoad | None:
        """What is left of the initial load; whether there is one, the log says."""
        if not isinstance(self._source, Loadable):
            return None
        load = InitialLoad(
            self._log,
            self._recorder,
            schemas=self._schemas,
            commit_clock=self._commit_clock,
            clock=self._clock,
            settings=self._snapshot,
            open_reader=self._source.table_reader,
            wake=self._source.wake,
        )
        self._beginnings = LoadBeginnings(
            load,
            self._source,
            self._recorder,
            self._schemas,
            tables=self._tables,
            scope=self._scope,
            clock=self._clock,
        )
        return load

    def _choose_tables(self) -> None:
        """Once, before the stream is read: it needs the server."""
        if self._beginnings is not None and not self._chosen and self._recorder.open is None:
            self._beginnings.choose()
            self._chosen = True

    def _step_load(self, cutter: TransactionCutter) -> None:
        load, beginnings = self._load, self._beginnings
        if load is None or beginnings is None:
            return
        if not self._chosen and cutter.between_transactions:  # the log began with a part of a transaction
            self._choose_tables()
        if not (load.is_due(cutter.passed) or beginnings.is_due(cutter.passed)):
            return
        self._flush(cutter)
        if cutter.between_transactions:
            load.step(cutter.passed)
            if beginnings.step(cutter.passed):
                cutter.forget_tables()

    @property
    def _loaded(self) -> bool:
        return self._load is None or self._load.ended

    def _read(self, cutter: TransactionCutter, position: SourcePosition, target: SourcePosition | None) -> bool:
        for chunk in self._chunks(position):
            if self._stop.is_set():
                return False
            if self._room is not None and not self._wait_for_room(self._room, cutter):
                return False
            if len(chunk.data) or self._heard_ms is None:  # the first one may be empty: the source has answered
                self._heard_ms = self._clock.wall_ms()
            for frame in cutter.feed(chunk):
                self._recorder.append(frame)
            self._flush_if_due(cutter, chunk)
            self._step_load(cutter)
            self._answer(cutter)
            if (
                target is not None
                and (chunk.idle or not cutter.waiting)
                and cutter.passed.reaches(target)
                and self._loaded
            ):
                return True
            self._say_progress()
        return not self._stop.is_set()

    def _chunks(self, position: SourcePosition) -> Iterator[Chunk]:
        """What the source sends. Only its own errors mean that it is lost: a frame that the log refused is not in the log,
        and going on after it would leave a hole."""
        try:
            yield from self._source.open(position)
        except Transient as error:
            raise _SourceLost(error) from error

    def _flush_if_due(self, cutter: TransactionCutter, chunk: Chunk) -> None:
        now = self._clock.monotonic()
        if not cutter.waiting:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = now
        if cutter.waiting and (chunk.idle or now - (self._waiting_since or now) >= FLUSH_SECONDS):
            self._flush(cutter)
        self._idle = cutter.between_transactions and not self._recorder.waiting
        self._recorder.reading(cutter.read, inside=cutter.state is not State.OUTSIDE)
        if cutter.between_transactions:
            self._recorder.passed(cutter.passed)
        else:
            self._recorder.settle()

    def _checkpoint(self) -> None:
        """Makes a checkpoint of the state at a position of its own, so that an older one need not be kept."""
        if self._recorder.open is None:
            self._recorder.finish()
            self._recorder.resume(())  # a frame that says nothing
            self._state.checkpoint()

    def _wait_for_room(self, room: Room, cutter: TransactionCutter) -> bool:
        """Returns once the log may grow; False if it is asked to stop meanwhile. The source waits, or hangs up: then it is
        asked again."""
        while lack := room.lack(self._recorder.bytes):
            if not self._paused:
                _logger.warning("capture pauses: %s", lack)
                if self._load is not None:
                    self._load.make_room()
            self._paused = lack
            self._say_progress()
            self._answer(cutter)
            if self._stop.is_set():
                return False
            self._clock.sleep(PAUSED_SECONDS)
        if self._paused:
            _logger.info("capture goes on: there is room again")
            self._paused = ""
        return True

    def _flush(self, cutter: TransactionCutter) -> None:
        for frame in cutter.flush():
            self._recorder.append(frame)
        self._waiting_since = None

    def _keep_finished(self, cutter: TransactionCutter) -> None:
        """What came before an event that ends the flow is in the log all the same."""
        if not self._recorder.failed:
            self._flush(cutter)
            self._recorder.finish()

    def _finish(self, cutter: TransactionCutter) -> None:
        """Appends the complete transactions and the position, and waits until they are durable."""
        self._flush(cutter)
        last = self._recorder.position
        if cutter.between_transactions and last is not None and cutter.passed.order > last.order:
            self._recorder.append(FrameContent([], cutter.passed))
        self._recorder.close()

    def _wait_before_retry(self, error: Transient, failures: int) -> None:
        if failures > RETRIES_MAX:
            raise Unavailable(f"the source does not answer: {error.message}", hint=error.hint) from error
        pause = min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2 ** (failures - 1))
        _logger.warning("lost the source, again in %.1f s: %s", pause, error)
        self._report({"event": Event.RETRYING, "message": str(error), "attempt": failures, "pause_seconds": pause})
        until = self._clock.monotonic() + pause
        while not self._stop.is_set() and self._clock.monotonic() < until:
            self._clock.sleep(0.05)
            self.answer()

    def answer(self) -> None:
        """Answers the requests that wait, if no transaction is partly in the log. For the thread of `run`, which does so by
        itself; for its caller once `run` has returned."""
        if self._requests is not None and self._requests.waiting and self._recorder.open is None:
            self._requests.answer({resumption.REQUEST: self._resume, backfill_request.REQUEST: self._backfill})
            self._report({"event": Event.PROGRESS, **self._facts()})

    def _answer(self, cutter: TransactionCutter) -> None:
        if self._requests is None or not self._requests.waiting:
            return
        self._flush(cutter)
        if cutter.between_transactions:
            self.answer()
            cutter.forget_tables()

    def _resume(self, request: dict[str, Any]) -> dict[str, Any]:
        """Resumes parked tables (resumption.py). Only between transactions."""
        wanted = Resumption.from_json(request)
        resumption.resume(wanted, self._log, self._state, self._recorder, self._schemas)
        return {}

    def _backfill(self, request: dict[str, Any]) -> dict[str, Any]:
        """Begins the load of tables beside the stream (load/beginning.py). Only between transactions."""
        if self._beginnings is None:
            raise BadInput(
                "this source has no tables to load from: its log has every row from its start on",
                hint="only a MariaDB or MySQL server can be asked for rows",
            )
        return self._beginnings.backfill(backfill_request.Backfill.from_json(request))

    def _parked(self) -> dict[str, Any]:
        found = self._schemas.parkings()
        return {"count": len(found), "tables": [parking.to_json() for parking in found[:PARKED_SHOWN_MAX]]}

    def _xa(self) -> dict[str, Any]:
        return xa_facts(self._recorder.groups.groups(), self._recorder.missed)

    def _say_progress(self) -> None:
        now = self._clock.monotonic()
        if now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        self._report({"event": Event.PROGRESS, **self._facts()})

    def _say_caught_up(self) -> None:
        self._report({"event": Event.CAUGHT_UP, "log_end": str(self._log.end()), **self._facts()})

    def _facts(self) -> dict[str, Any]:
        recorder = self._recorder
        position = recorder.durable
        commit_ms = milliseconds_of(position.commit_ts) if position else 0
        return {
            "events": recorder.events,
            "transactions": recorder.transactions,
            "bytes": recorder.bytes,
            "position": asdict(position) if position else None,
            "positions": recorder.status(),
            "parked": self._parked(),
            "xa": self._xa(),
            "load": self._load and self._load.facts(),
            "commit_ts": position.commit_ts if position else 0,
            "heard_ms": self._heard_ms,
            "paused": self._paused,
            # From taking a transaction from the source to having it on disk; 0 while nothing waits.
            "lag_ms": 0 if self._idle else max(0, self._clock.wall_ms() - commit_ms),
        }


def open_log(state_dir: Path, settings: LogSettings | None = None) -> Log:
    return Log.open(state_dir / "log", settings or LogSettings())
