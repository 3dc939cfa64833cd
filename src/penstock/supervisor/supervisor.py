"""The supervisor of one `penstock run`: starts the children, keeps the changefeeds' facts, and ends in order.

It owns the state directory's lock. One thread decides: it handles the children's reports, starts a child again that
died (after a backoff), and ends the run when a child reports an error that does not heal.

A stop goes in this order, within `stop_seconds_max`: (1) capture, so nothing new enters the log; (2) the driver, once it
has published what the log holds; (3) delivery flushes what was published; (4) delivery ends; (5) `control.sock` and the
keepers close. A second request to stop, or the end of the time, kills what is left. Nothing is lost either way: the next
run goes on from progress and cursor, and the summary says what is left for it (`EXIT_LEFT`).

With `once`, capture reads up to where the source was at the start and reports where the log ended; the run is over when
the mark-delete position of every changefeed is there.
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
from penstock.errors import BadInput, PenstockError, Unavailable
from penstock.files import REAL_FILES, Files
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.process import EXIT_INTERRUPTED, EXIT_LEFT, EXIT_OK, EXIT_SINK, EXIT_TRY_AGAIN, Event
from penstock.rules.settings import identity, rules_from_json
from penstock.secret import Secret
from penstock.supervisor.child import ChildSaid, Report
from penstock.supervisor.control_server import ControlServer, control_path
from penstock.supervisor.delivery_client import DeliveryClient, DeliveryPoll, Flush
from penstock.supervisor.http_server import HttpServer
from penstock.supervisor.reporter import Phase, Reporter, Watched
from penstock.supervisor.requests import Requests
from penstock.supervisor.restarts import Backoff, ChildSlot, Failure
from penstock.supervisor.run_directory import clear_run_directory, prepare_run_directory, secure_state_directory
from penstock.supervisor.settings import RunSettings
from penstock.supervisor.status import RunStatus, RunSummary
from penstock.supervisor.stopping import Stop, stop_on_signals

OnProgress = Callable[[RunStatus], None]

TICK_SECONDS = 0.1
FLUSH_AGAIN_SECONDS = 0.5  # with `once`: the pause between two flushes while delivery does not have everything yet
ONCE_DEATHS_MAX = 5  # with `once`: deaths of one child in a row before the run ends with "try again later"
ONCE_STUCK_MAX = 3  # with `once`: flushes in a row that end in a terminal error before the run fails
PUBLISH_STILL_SECONDS_MAX = 8.0  # a stop: how long a driver that works may publish nothing before it is not waited for
_KILL_SECONDS_MAX = 5.0  # how long killed children may take to be gone


def run(
    settings: RunSettings,
    *,
    on_progress: OnProgress | None = None,
    stop_event: Stop | threading.Event | None = None,
    files: Files = REAL_FILES,
    clock: Clock = SYSTEM_CLOCK,
) -> RunSummary:
    """Runs until stopped, or with `once` until caught up. Without `stop_event`, Ctrl-C and SIGTERM stop it.

    Raises `Unavailable` if another run owns the state directory, `BadInput` if it is not this user's own. The kernel kills
    the children when the calling thread ends.
    """
    stop = stop_event if stop_event is not None else Stop()
    with contextlib.ExitStack() as stack:
        try:
            tightened = secure_state_directory(settings.state_dir)
            stack.enter_context(files.lock(settings.state_dir / "lock"))
            prepare_run_directory(settings.state_dir)
        except OSError as error:
            raise BadInput(
                f"the state directory {settings.state_dir} cannot be written: {error.strerror or error}",
                hint="set state_dir to a directory that this user may make and write",
            ) from error
        if isinstance(stop, Stop) and stop_event is None:
            stack.enter_context(stop_on_signals(stop))
        stack.callback(clear_run_directory, settings.state_dir)
        return _Run(settings, stop, on_progress, files, clock, note=tightened).run()


class _Run:
    def __init__(
        self,
        settings: RunSettings,
        stop: Stop | threading.Event,
        on_progress: OnProgress | None,
        files: Files,
        clock: Clock,
        *,
        note: str = "",
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._on_progress = on_progress
        self._files = files
        self._clock = clock
        self._names = list(settings.changefeeds)
        self._reports: queue.Queue[Report] = queue.Queue()
        self._slots = self._make_slots()
        self._reporter = Reporter(settings, self._slots, clock)
        self._delivery = DeliveryClient(settings.state_dir)
        self._poll = DeliveryPoll(self._delivery, settings.progress_every_seconds)
        self._phase: Phase = "starting"
        self._note = note
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
        self._status = self._reporter.status("starting", {}, note)
        self._capture_requests = Requests(self._slots["capture"])
        self._http = (
            HttpServer(settings.http_listen, lambda: self._status, self._delivery.metrics)
            if settings.http_listen is not None
            else None
        )
        self._control = ControlServer(
            control_path(settings.state_dir),
            self._names,
            lambda: self._status,
            self._capture_requests.ask,
            lambda name, paused: self._delivery.pause(name, paused=paused),
        )

    def run(self) -> RunSummary:
        started = self._clock.monotonic()
        drained = False
        try:
            self._open_keepers_if_possible()
            for name in ("delivery", "capture", "driver"):
                self._slots[name].start()
            while not self._is_over():
                self._turn()
            drained = self._drain()
        finally:
            self._kill_all()
            self._poll.close()
            self._control.close()
            if self._http is not None:
                self._http.close()
            self._show_status("stopped")
            summary = self._summary(drained, self._clock.monotonic() - started)
            for maintainer in self._maintainers.values():
                maintainer.keeper.close()
            if self._reporter.reader is not None:
                self._reporter.reader.close()
        return summary

    # One turn of the loop.

    def _is_over(self) -> bool:
        return self._failure is not None or self._stop.is_set() or self._caught_up

    @property
    def _caught_up(self) -> bool:
        """With `once`: what the source had at the start is at every sink that is not paused."""
        end = self._log_end
        return (
            end is not None
            and len(self._maintainers) == len(self._names)
            and all(m.keeper.reached(end) for m in self._active.values())
        )

    @property
    def _active(self) -> dict[str, Maintainer]:
        """The changefeeds that are not paused: nobody waits for the others."""
        return {name: m for name, m in self._maintainers.items() if m.keeper.paused_ms is None}

    def _turn(self) -> None:
        self._handle_reports(TICK_SECONDS)
        for slot in self._slots.values():
            slot.start_if_due()
        if self._settings.once:
            self._flush_to_the_end()
        for maintainer in self._maintainers.values():
            if maintainer.keeper.broken is not None and self._failure is None:
                error = maintainer.keeper.broken
                self._failure = Failure(EXIT_TRY_AGAIN, error.message, error.hint)
        self._show_status_if_due()

    def _handle_reports(self, seconds: float) -> None:
        """Handles all reports that have arrived; waits up to `seconds` for the first one."""
        try:
            report = self._reports.get(timeout=seconds)
            while True:
                self._handle(report)
                report = self._reports.get_nowait()
        except queue.Empty:
            pass

    def _handle(self, report: Report) -> None:
        slot = self._slots[report.child]
        if report.pid != slot.pid:
            return
        if not isinstance(report, ChildSaid):
            failure = slot.on_end(report.code)
            if slot.name == "capture":
                self._capture_requests.on_end()
            if failure is None and self._settings.once and slot.deaths_in_a_row >= ONCE_DEATHS_MAX:
                failure = Failure(EXIT_TRY_AGAIN, f"{slot.name} {slot.note}", f"see run/{slot.name}.log")
            self._failure = self._failure or failure
            return
        slot.on_event(report.event)
        if slot.name == "driver":
            self._note_driver(report)
        if slot.name != "capture":
            return
        if report.event["event"] == Event.ANSWER:
            self._capture_requests.on_answer(report.event)
        if report.event["event"] in (Event.READY, Event.CAUGHT_UP):
            self._open_keepers_if_possible()
        if report.event["event"] == Event.CAUGHT_UP and self._settings.once:
            self._log_end = Position.parse(str(report.event["log_end"]))
            slot.expect_end()
        self._reporter.on_capture_event(report.event)

    def _note_driver(self, report: ChildSaid) -> None:
        """Keeps where the driver's time goes, for the summary."""
        if report.event["event"] == Event.READY and self._driver_ready_seconds is None:
            self._driver_ready_seconds = self._clock.monotonic() - self._started
        seconds = report.event.get("stage_seconds")
        if isinstance(seconds, dict):
            self._stage_seconds[report.pid, str(report.event.get("changefeed"))] = seconds

    def _open_keepers_if_possible(self) -> None:
        """Opens the keepers once the log exists. An existing log is delivered even while the source does not answer."""
        state_dir = self._settings.state_dir
        if self._maintainers:
            return
        try:
            self._reporter.reader = LogReader.open(state_dir / "log", files=self._files)
        except Unavailable:
            return  # there is no log yet; capture makes it
        for name in self._names:
            keeper = Keeper.open(state_dir, name, self._reporter.reader, files=self._files, clock=self._clock)
            try:
                keeper.keep_rules(_rules_identity(self._settings.changefeeds[name]))
            except PenstockError:
                keeper.close()
                raise
            maintainer = Maintainer(keeper, self._delivery.begin_run)
            self._maintainers[name] = maintainer
            self._reporter.watched[name] = Watched.of(keeper, self._reporter.reader)
            self._control.attach(maintainer)
        self._phase = "running"

    def _flush_to_the_end(self) -> None:
        """Flushes each changefeed that has published everything, instead of waiting for its sink's interval; again and
        again, because delivery may die meanwhile."""
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
        """Fails the run after some flushes with a terminal error: a table that stopped for good would keep `once`
        waiting for ever."""
        stuck = [error for error in flush.errors.values() if not error.transient]
        self._flushes_stuck = self._flushes_stuck + 1 if stuck else 0
        if self._flushes_stuck >= ONCE_STUCK_MAX:
            self._failure = self._failure or Failure(EXIT_SINK, stuck[0].message, stuck[0].hint)

    # The end.

    def _drain(self) -> bool:
        """Steps 1 to 4 of a stop. True if everything that was published is at the sinks: the keepers know, whether or not
        delivery could be asked to flush."""
        deadline = self._clock.monotonic() + self._settings.stop_seconds_max
        self._phase = "draining"
        self._control.end()
        # Killing capture or the driver loses nothing, so they get only a part of the time: the rest is left for the flush.
        self._end("capture", self._clock.monotonic() + self._settings.stop_seconds_max / 3)
        self._publish_the_rest(deadline - self._settings.stop_seconds_max / 4)
        self._end("driver", self._clock.monotonic() + self._settings.stop_seconds_max / 3)
        self._flush_all(deadline)
        self._end("delivery", deadline)
        return all(m.keeper.waiting_ranges == 0 for m in self._maintainers.values())

    def _end(self, name: str, deadline: float) -> None:
        slot = self._slots[name]
        if name == "driver" and slot.state == "starting":
            slot.kill()  # it does not listen while Spark's JVM starts
        slot.ask_to_stop()
        while slot.alive and self._may_wait(deadline):
            self._handle_reports(TICK_SECONDS)
            self._show_status_if_due()
        slot.kill()

    def _publish_the_rest(self, deadline: float) -> None:
        """Waits until the driver has published all that the log holds. A transaction whose end is not in the log is never
        published: a driver that publishes nothing for a while has nothing more."""
        reader, driver = self._reporter.reader, self._slots["driver"]
        if reader is None or self._failure is not None:
            return
        end = reader.end()
        before, moved_at = self._published_ends(), self._clock.monotonic()
        while driver.alive and self._slots["delivery"].alive and self._may_wait(deadline):
            if all(m.keeper.published_reached(end) or not m.keeper.backlog_bytes() for m in self._active.values()):
                return
            self._handle_reports(TICK_SECONDS)
            self._show_status_if_due()
            now, ends = self._clock.monotonic(), self._published_ends()
            if ends != before or driver.state != "running":
                before, moved_at = ends, now
            if now - moved_at > PUBLISH_STILL_SECONDS_MAX:
                return

    def _published_ends(self) -> list[Position]:
        return [maintainer.keeper.published_end for maintainer in self._maintainers.values()]

    def _flush_all(self, deadline: float) -> None:
        remaining = deadline - self._clock.monotonic()
        if not self._slots["delivery"].alive or not self._maintainers or remaining <= 0 or self._at_once:
            return
        flush = self._delivery.flush(list(self._maintainers), remaining)
        while not flush.over and self._slots["delivery"].alive and self._may_wait(deadline):
            self._handle_reports(TICK_SECONDS)
            self._show_status_if_due()

    @property
    def _at_once(self) -> bool:
        return isinstance(self._stop, Stop) and self._stop.at_once

    def _may_wait(self, deadline: float) -> bool:
        return not self._at_once and self._clock.monotonic() < deadline

    def _kill_all(self) -> None:
        for slot in self._slots.values():
            slot.kill()
        deadline = self._clock.monotonic() + _KILL_SECONDS_MAX
        while any(slot.alive for slot in self._slots.values()) and self._clock.monotonic() < deadline:
            self._handle_reports(TICK_SECONDS)

    # What others see.

    def _show_status_if_due(self) -> None:
        if self._clock.monotonic() >= self._progress_due:
            self._progress_due = self._clock.monotonic() + self._settings.progress_every_seconds
            self._show_status(self._phase)

    def _show_status(self, phase: Phase) -> None:
        self._status = self._reporter.status(phase, self._poll.latest, self._note)
        if self._on_progress is not None:
            self._on_progress(self._status)

    def _summary(self, drained: bool, seconds: float) -> RunSummary:
        delivered = self._reporter.delivered()
        left = {name: m.keeper.backlog_bytes() for name, m in self._maintainers.items()}
        # What was captured and never published is left too; of a paused changefeed that is meant.
        drained = drained and not any(left[name] for name in self._active)
        if self._failure is not None:
            failure = self._failure
        elif self._settings.once and not self._caught_up:
            failure = Failure(
                EXIT_INTERRUPTED, "stopped before it had caught up with the source", "run it again to go on"
            )
        else:
            failure = (
                Failure(EXIT_OK, "") if drained else Failure(EXIT_LEFT, self._undrained(), "penstock run goes on there")
            )
        return RunSummary(
            exit_code=failure.exit_code,
            rows=delivered.rows,
            files=delivered.files,
            bytes=delivered.bytes,
            seconds=seconds,
            drained=drained,
            message=failure.message,
            hint=failure.hint,
            restarts={name: slot.restarts for name, slot in self._slots.items()},
            log_end=str(self._log_end) if self._log_end is not None else None,
            mark_delete={name: str(m.keeper.mark_delete) for name, m in self._maintainers.items()},
            left_bytes=left,
            paused=tuple(name for name in self._maintainers if name not in self._active),
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
        return f"{how} everything was at the sinks; nothing is lost"

    def _make_slots(self) -> dict[str, ChildSlot]:
        settings = self._settings
        state_dir = str(settings.state_dir)
        documents: dict[str, dict[str, Any]] = {
            "capture": {
                "state_dir": state_dir,
                "source": settings.source,
                "log": settings.log,
                "state": settings.state,
                "limits": settings.limits,
                "until": "now" if settings.once else None,
            },
            "delivery": {"state_dir": state_dir, "changefeeds": _without_keys(settings.changefeeds)},
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


def _without_keys(changefeeds: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings for a process that masks nothing."""
    return {name: {key: one for key, one in value.items() if key != "mask_key"} for name, value in changefeeds.items()}


def _rules_identity(changefeed: dict[str, Any]) -> str:
    key = changefeed.get("mask_key")
    return identity(rules_from_json(changefeed.get("rules")), key.reveal() if isinstance(key, Secret) else key)
