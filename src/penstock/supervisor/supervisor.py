"""The supervisor of one `penstock run`: starts the children, keeps the changefeeds' facts, and ends in order.

It owns the state directory's lock. One thread decides: it hears the children's reports, starts again what died (after a
backoff), ends the run where a child reports an error that does not heal. The order of a stop, within
`stop_seconds_max`: (1) capture: nothing new enters the log; (2) the driver: nothing new is published; (3) delivery
flushes what was published; (4) delivery; (5) `control.sock` and the keepers. A second wish to stop, or the end of the
time, kills what is left. Nothing is lost either way: the next run goes on from progress and cursor.

With `once`: capture goes up to where the source was at the start and says where the log ended; the run is over when every
changefeed's mark-delete is there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import Maintainer
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Unavailable
from penstock.files import REAL_FILES, Files
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.supervisor.child import ChildSaid, Report
from penstock.supervisor.control_server import ControlServer, control_path
from penstock.supervisor.delivery_client import DeliveryClient, DeliveryPoll, Flush
from penstock.supervisor.reporter import Phase, Reporter, Watched
from penstock.supervisor.restarts import Backoff, ChildSlot, Failure
from penstock.supervisor.settings import RunSettings, RunSummary, Stop, stop_on_signals
from penstock.supervisor.status import RunStatus

OnProgress = Callable[[RunStatus], None]

TICK_SECONDS = 0.1
FLUSH_AGAIN_SECONDS = 0.5  # with `once`, while delivery has not everything yet
ONCE_DEATHS_MAX = 5  # of one child in a row, before `once` gives up with "try again later"
ONCE_STUCK_MAX = 3  # flushes in a row that a terminal error ended, before `once` gives up
FORGOTTEN_RUN_SECONDS = 5.0  # how long the driver may take to notice a new delivery that has lost its payloads
TRY_AGAIN_LATER = 75


def run(
    settings: RunSettings,
    *,
    on_progress: OnProgress | None = None,
    stop_event: Stop | threading.Event | None = None,
    files: Files = REAL_FILES,
    clock: Clock = SYSTEM_CLOCK,
) -> RunSummary:
    """Runs until stopped, or with `once` until caught up. Without `stop_event`, Ctrl-C and SIGTERM stop it.

    Raises `Unavailable` where another run owns the state directory. Call it from a thread that lives until it returns:
    the children die with that thread.
    """
    stop = stop_event if stop_event is not None else Stop()
    files.make_directory(settings.state_dir)
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.lock(settings.state_dir / "lock"))
        if isinstance(stop, Stop) and stop_event is None:
            stack.enter_context(stop_on_signals(stop))
        (settings.state_dir / "run").mkdir(mode=0o700, exist_ok=True)
        return _Run(settings, stop, on_progress, files, clock).run()


class _Run:
    def __init__(
        self,
        settings: RunSettings,
        stop: Stop | threading.Event,
        on_progress: OnProgress | None,
        files: Files,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._on_progress = on_progress
        self._files = files
        self._clock = clock
        self._names = list(settings.changefeeds)
        self._reports: queue.Queue[Report] = queue.Queue()
        self._places = self._make_places()
        self._reporter = Reporter(settings, self._places, clock)
        self._delivery = DeliveryClient(settings.state_dir)
        self._poll = DeliveryPoll(self._delivery, settings.progress_every_seconds)
        self._phase: Phase = "starting"
        self._note = ""
        self._failure: Failure | None = None
        self._log_end: Position | None = None  # with `once`: where capture ended
        self._flush: Flush | None = None
        self._flush_again_at = 0.0
        self._flushes_stuck = 0
        self._maintainers: dict[str, Maintainer] = {}
        self._progress_due = 0.0
        self._started = clock.monotonic()
        self._driver_ready_seconds: float | None = None
        self._stage_seconds: dict[tuple[int, str], dict[str, float]] = {}  # by driver process and changefeed
        self._status = self._reporter.status("starting", {})
        self._control = ControlServer(control_path(settings.state_dir), self._names, lambda: self._status)

    def run(self) -> RunSummary:
        started = self._clock.monotonic()
        drained = False
        try:
            self._open_keepers_if_possible()
            for name in ("delivery", "capture", "driver"):
                self._places[name].start()
            while not self._over():
                self._turn()
            drained = self._drain()
        finally:
            self._kill_all()
            self._poll.close()
            self._control.close()
            self._tell("stopped")
            summary = self._summary(drained, self._clock.monotonic() - started)
            for maintainer in self._maintainers.values():
                maintainer.keeper.close()
            if self._reporter.reader is not None:
                self._reporter.reader.close()
        return summary

    # ---- one turn of the loop

    def _over(self) -> bool:
        if self._failure is not None or self._stop.is_set():
            return True
        return self._log_end is not None and all(
            name in self._maintainers and self._maintainers[name].keeper.reached(self._log_end) for name in self._names
        )

    def _turn(self) -> None:
        self._hear(TICK_SECONDS)
        for place in self._places.values():
            place.start_if_due()
        self._restart_driver_that_forgot()
        if self._settings.once:
            self._push_to_the_end()
        for maintainer in self._maintainers.values():
            if maintainer.keeper.broken is not None and self._failure is None:
                error = maintainer.keeper.broken
                self._failure = Failure(TRY_AGAIN_LATER, error.message, error.hint)
        self._tell_if_due()

    def _hear(self, seconds: float) -> None:
        """Handles the reports that are there; waits up to `seconds` for the first."""
        try:
            report = self._reports.get(timeout=seconds)
            while True:
                self._handle(report)
                report = self._reports.get_nowait()
        except queue.Empty:
            pass

    def _handle(self, report: Report) -> None:
        place = self._places[report.child]
        if report.pid != place.pid:
            return
        if not isinstance(report, ChildSaid):
            failure = place.ended(report.code)
            if failure is None and self._settings.once and place.deaths_in_a_row >= ONCE_DEATHS_MAX:
                failure = Failure(TRY_AGAIN_LATER, f"{place.name} {place.note}", f"see run/{place.name}.log")
            self._failure = self._failure or failure
            return
        place.said(report.event)
        if place.name == "driver":
            self._note_driver(report)
        if place.name != "capture":
            return
        if report.event["event"] in ("ready", "caught-up"):
            self._open_keepers_if_possible()
        if report.event["event"] == "caught-up" and self._settings.once:
            self._log_end = Position.parse(str(report.event["log_end"]))
            place.finished()
        self._reporter.hear_capture(report.event)

    def _note_driver(self, report: ChildSaid) -> None:
        """Where its time goes, for the summary."""
        if report.event["event"] == "ready" and self._driver_ready_seconds is None:
            self._driver_ready_seconds = self._clock.monotonic() - self._started
        seconds = report.event.get("stage_seconds")
        if isinstance(seconds, dict):
            self._stage_seconds[report.pid, str(report.event.get("changefeed"))] = seconds

    def _open_keepers_if_possible(self) -> None:
        """A log that is there already is delivered even while the source does not answer."""
        state_dir = self._settings.state_dir
        if self._maintainers:
            return
        try:
            self._reporter.reader = LogReader.open(state_dir / "log", files=self._files)
        except Unavailable:
            return  # capture makes it
        for name in self._names:
            keeper = Keeper.open(state_dir, name, self._reporter.reader, files=self._files, clock=self._clock)
            maintainer = Maintainer(keeper, self._delivery.begin_run)
            self._maintainers[name] = maintainer
            self._reporter.watched[name] = Watched.of(keeper, self._reporter.reader)
            self._control.attach(maintainer)
        self._phase = "running"

    def _restart_driver_that_forgot(self) -> None:
        """A driver without new entries does not publish, so it cannot see that delivery died with its payloads."""
        delivery, driver = self._places["delivery"], self._places["driver"]
        now = self._clock.monotonic()
        if delivery.ready_at is None or not driver.alive or now - delivery.ready_at < FORGOTTEN_RUN_SECONDS:
            return
        for maintainer in self._maintainers.values():
            begun = maintainer.begun_at
            if begun is not None and driver.started_at < begun < delivery.ready_at and maintainer.keeper.waiting_ranges:
                driver.kill(restart=True)
                return

    def _push_to_the_end(self) -> None:
        """Everything is published: no reason to wait for the sinks' intervals. Again, should delivery die meanwhile."""
        if self._log_end is None or len(self._maintainers) < len(self._names):
            return
        now = self._clock.monotonic()
        if self._flush is not None and self._flush.over:
            self._note_stuck(self._flush)
            self._flush, self._flush_again_at = None, now + FLUSH_AGAIN_SECONDS
        if self._flush is None and now >= self._flush_again_at:
            ready = [n for n in self._names if self._maintainers[n].keeper.published_reached(self._log_end)]
            if ready:
                self._flush = self._delivery.flush(ready, 600.0)

    def _note_stuck(self, flush: Flush) -> None:
        """A table that stopped for good would keep `once` waiting for ever."""
        stuck = [error for error in flush.errors.values() if not error.transient]
        self._flushes_stuck = self._flushes_stuck + 1 if stuck else 0
        if self._flushes_stuck >= ONCE_STUCK_MAX:
            self._failure = self._failure or Failure(4, stuck[0].message, stuck[0].hint)

    # ---- the end

    def _drain(self) -> bool:
        """Steps 1 to 4 of a stop. Whether everything that was published is at the sinks."""
        deadline = self._clock.monotonic() + self._settings.stop_seconds_max
        self._phase = "draining"
        self._control.end()
        for name in ("capture", "driver"):
            # Killing them costs nothing, so that one that does not listen leaves time for the flush.
            self._end(name, self._clock.monotonic() + self._settings.stop_seconds_max / 3)
        flushed = self._flush_all(deadline)
        self._end("delivery", deadline)
        return flushed and all(m.keeper.waiting_ranges == 0 for m in self._maintainers.values())

    def _end(self, name: str, deadline: float) -> None:
        place = self._places[name]
        if name == "driver" and place.state == "starting":
            place.kill()  # it has published nothing, and hears nothing while Spark's JVM starts
        place.ask_to_stop()
        while place.alive and self._may_wait(deadline):
            self._hear(TICK_SECONDS)
            self._tell_if_due()
        place.kill()

    def _flush_all(self, deadline: float) -> bool:
        if not self._places["delivery"].alive or not self._maintainers:
            return not self._maintainers
        remaining = deadline - self._clock.monotonic()
        if remaining <= 0 or self._at_once:
            return False
        flush = self._delivery.flush(list(self._maintainers), remaining)
        while not flush.over and self._places["delivery"].alive and self._may_wait(deadline):
            self._hear(TICK_SECONDS)
            self._tell_if_due()
        return flush.over and not flush.errors

    @property
    def _at_once(self) -> bool:
        return isinstance(self._stop, Stop) and self._stop.at_once

    def _may_wait(self, deadline: float) -> bool:
        return not self._at_once and self._clock.monotonic() < deadline

    def _kill_all(self) -> None:
        for place in self._places.values():
            place.kill()
        deadline = self._clock.monotonic() + 5.0
        while any(place.alive for place in self._places.values()) and self._clock.monotonic() < deadline:
            self._hear(TICK_SECONDS)

    # ---- what others see

    def _tell_if_due(self) -> None:
        if self._clock.monotonic() >= self._progress_due:
            self._progress_due = self._clock.monotonic() + self._settings.progress_every_seconds
            self._tell(self._phase)

    def _tell(self, phase: Phase) -> None:
        self._status = self._reporter.status(phase, self._poll.latest, self._note)
        if self._on_progress is not None:
            self._on_progress(self._status)

    def _summary(self, drained: bool, seconds: float) -> RunSummary:
        delivered = self._reporter.delivered()
        failure = self._failure or Failure(0, "" if drained else self._undrained())
        return RunSummary(
            exit_code=failure.exit_code,
            rows=delivered.rows,
            files=delivered.files,
            bytes=delivered.bytes,
            seconds=seconds,
            drained=drained,
            message=failure.message,
            hint=failure.hint,
            restarts={name: place.restarts for name, place in self._places.items()},
            log_end=str(self._log_end) if self._log_end is not None else None,
            mark_delete={name: str(m.keeper.mark_delete) for name, m in self._maintainers.items()},
            driver_ready_seconds=self._driver_ready_seconds,
            stage_seconds=self._total_stage_seconds(),
        )

    def _total_stage_seconds(self) -> dict[str, float]:
        total: dict[str, float] = {}
        for seconds in self._stage_seconds.values():
            for stage, value in seconds.items():
                total[stage] = total.get(stage, 0.0) + value
        return total

    def _undrained(self) -> str:
        how = "stopped at once, before" if self._at_once else "stopped before"
        return f"{how} everything was at the sinks; nothing is lost, the next run goes on there"

    def _make_places(self) -> dict[str, ChildSlot]:
        settings = self._settings
        state_dir = str(settings.state_dir)
        documents: dict[str, dict[str, Any]] = {
            "capture": {
                "state_dir": state_dir,
                "source": settings.source,
                "log": settings.log,
                "until": "now" if settings.once else None,
            },
            "delivery": {"state_dir": state_dir, "changefeeds": settings.changefeeds},
            "driver": {"state_dir": state_dir, "changefeeds": settings.changefeeds, "spark": settings.spark},
        }
        backoff = Backoff(settings.backoff_first_seconds, settings.backoff_seconds_max, settings.healthy_seconds)
        return {
            name: ChildSlot(
                name,
                settings.commands[name].argv,
                document,
                run_dir=settings.state_dir / "run",
                reports=self._reports,
                backoff=backoff,
                clock=self._clock,
            )
            for name, document in documents.items()
        }
