"""The supervisor of one `penstock run`: starts the children, keeps the changefeeds' facts, and ends in order.

It owns the state directory's lock. One thread decides: it handles the children's reports, starts a child again that
died (after a backoff), and ends the run when a child reports an error that does not heal. An error that concerns one
changefeed alone stops that one; the others go on, and the exit code says so at the end. The run ends by itself once all of
them have failed.

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

from penstock.changefeed.maintainer import Maintainer
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, PenstockError, Unavailable
from penstock.files import REAL_FILES, Files
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.process import EXIT_INTERRUPTED, EXIT_LEFT, EXIT_OK, EXIT_SINK, EXIT_TRY_AGAIN, Event
from penstock.supervisor.child import ChildSaid, Report
from penstock.supervisor.control_server import ControlServer, control_path
from penstock.supervisor.delivery_client import DeliveryClient, DeliveryPoll, Flush
from penstock.supervisor.feeds.changefeeds import Changefeeds, Members
from penstock.supervisor.feeds.reloading import ReadAgain, Reloading
from penstock.supervisor.health.binlog_headroom import BinlogHeadroom
from penstock.supervisor.http.process_metrics import ProcessMetrics
from penstock.supervisor.http.server import HttpServer
from penstock.supervisor.reporter import Phase, Reporter, Watched
from penstock.supervisor.requests import Requests
from penstock.supervisor.restarts import Backoff, ChildSlot, Failure
from penstock.supervisor.run_directory import (
    clear_run_directory,
    prepare_run_directory,
    refuse_unfinished_recovery,
    secure_state_directory,
    write_settings_record,
)
from penstock.supervisor.settings import RunSettings, child_documents
from penstock.supervisor.status import RunStatus, RunSummary
from penstock.supervisor.stopping import Stop, stop_on_signals

OnProgress = Callable[[RunStatus], None]

TICK_SECONDS = 0.1
FLUSH_AGAIN_SECONDS = 0.5  # with `once`: the pause between two flushes while delivery does not have everything yet
ONCE_DEATHS_MAX = 5  # with `once`: deaths of one child in a row before the run ends with "try again later"
ONCE_STUCK_MAX = 3  # with `once`: flushes in a row that end in a terminal error before the run fails
_KILL_SECONDS_MAX = 5.0  # how long killed children may take to be gone


def run(
    settings: RunSettings,
    *,
    on_progress: OnProgress | None = None,
    stop_event: Stop | threading.Event | None = None,
    read_again: ReadAgain | None = None,
    files: Files = REAL_FILES,
    clock: Clock = SYSTEM_CLOCK,
) -> RunSummary:
    """Runs until stopped, or with `once` until caught up. Without `stop_event`, Ctrl-C, SIGTERM and SIGHUP stop it. `read_again` gives
    the settings as the configuration has them now, for whoever asks to reload it.

    Raises `Unavailable` if another run owns the state directory, `BadInput` if it is not this user's own. The kernel kills
    the children when the calling thread ends.
    """
    stop = stop_event if stop_event is not None else Stop()
    with contextlib.ExitStack() as stack:
        try:
            tightened = secure_state_directory(settings.state_dir)
            stack.enter_context(files.lock(settings.state_dir / "lock"))
            refuse_unfinished_recovery(settings.state_dir, files)
            prepare_run_directory(settings.state_dir)
            if settings.record is not None:
                write_settings_record(settings.state_dir, settings.record, clock.wall_ms(), files)
        except OSError as error:
            raise BadInput(
                f"the state directory {settings.state_dir} cannot be written: {error.strerror or error}",
                hint="set state_dir to a directory that this user may make and write",
            ) from error
        if isinstance(stop, Stop) and stop_event is None:
            stack.enter_context(stop_on_signals(stop))
        stack.callback(clear_run_directory, settings.state_dir)
        return _Run(settings, stop, on_progress, read_again, files=files, clock=clock, note=tightened).run()


class _Run:
    def __init__(
        self,
        settings: RunSettings,
        stop: Stop | threading.Event,
        on_progress: OnProgress | None,
        read_again: ReadAgain | None,
        *,
        files: Files,
        clock: Clock,
        note: str = "",
    ) -> None:
        self._settings = settings
        self._stop = stop
        self._on_progress = on_progress
        self._files = files
        self._clock = clock
        self._reports: queue.Queue[Report] = queue.Queue()
        self._delivery = DeliveryClient(settings.state_dir)
        self._feeds = Changefeeds(
            settings, self._delivery.begin_run, opened=self._opened, closed=self._closed, files=files, clock=clock
        )
        self._slots = self._make_slots()
        self._reloading = Reloading(settings, self._feeds, self._slots, read_again, files=files, clock=clock)
        self._headroom = BinlogHeadroom.of(settings.source, clock)
        self._reporter = Reporter(settings, self._slots, clock, self._feeds, self._headroom)
        self._metrics = ProcessMetrics(self._delivery.metrics)
        self._poll = DeliveryPoll(self._delivery, settings.progress_every_seconds, self._slots["delivery"].heard)
        self._phase: Phase = "starting"
        self._note = note
        self._failure: Failure | None = None
        self._log_end: Position | None = None  # with `once`: where capture ended
        self._flush: Flush | None = None
        self._flush_again_at = 0.0
        self._flushes_stuck: dict[str, int] = {}
        self._progress_due = 0.0
        self._started = clock.monotonic()
        self._driver_ready_seconds: float | None = None
        self._stage_seconds: dict[tuple[int, str], dict[str, float]] = {}  # by process and changefeed
        self._status = self._reporter.status("starting", {}, note)
        self._requests = {name: Requests(slot) for name, slot in self._slots.items()}
        self._members = {
            name: Members(self._slots[name], self._requests[name], clock) for name in ("delivery", "driver")
        }
        self._http = (
            HttpServer(settings.http_listen, lambda: self._status, self._metrics.text)
            if settings.http_listen is not None
            else None
        )
        self._control = ControlServer(
            control_path(settings.state_dir),
            self._feeds.settings,
            lambda: self._status,
            ask_capture=self._requests["capture"].ask,
            pause_at_delivery=lambda name, wish: self._tell(name, lambda: self._delivery.pause(name, wish)),
            leave_out_at_delivery=lambda name, dispatcher, out: self._tell(
                name, lambda: self._delivery.leave_out(name, dispatcher, out=out)
            ),
            try_again=self._try_again,
            reload=self._reloading.ask,
            forget=self._reloading.ask_to_forget,
        )

    def run(self) -> RunSummary:
        started = self._clock.monotonic()
        drained = False
        try:
            self._open_keepers_if_possible()
            if self._headroom is not None:
                self._headroom.start()
            for name in ("delivery", "capture", "driver"):
                self._slots[name].start()
            while not self._is_over():
                self._turn()
            drained = self._drain()
        finally:
            self._kill_all()
            self._poll.close()
            if self._headroom is not None:
                self._headroom.close()
            self._control.close()
            if self._http is not None:
                self._http.close()
            self._show_status("stopped")
            self._note_broken()
            summary = self._summary(drained, self._clock.monotonic() - started)
            with contextlib.suppress(*((PenstockError,) if self._failure else ())):  # the summary says it already
                self._feeds.close()
            if self._reporter.reader is not None:
                self._reporter.reader.close()
        return summary

    # One turn of the loop.

    def _is_over(self) -> bool:
        return self._failure is not None or self._stop.is_set() or self._caught_up

    @property
    def _caught_up(self) -> bool:
        """With `once`: what the source had at the start is at every sink that is not paused and did not fail, but for tables
        that are paused."""
        end = self._log_end
        return (
            end is not None and self._feeds.all_open and all(m.keeper.settled(end) for m in self._feeds.active.values())
        )

    def _turn(self) -> None:
        self._handle_reports(TICK_SECONDS)
        for slot in self._slots.values():
            slot.start_if_due()
            if self._settings.once and slot.state == "waiting" and slot.deaths_in_a_row >= ONCE_DEATHS_MAX:
                self._failure = self._failure or slot.give_up()
        self._reloading.fulfil()
        if self._settings.once:
            self._flush_to_the_end()
        self._feeds.follow(self._members["delivery"], self._members["driver"])
        self._note_broken()
        if self._feeds.all_failed:
            self._failure = self._failure or self._feeds.failure
        self._show_status_if_due()

    def _note_broken(self) -> None:
        if (error := self._feeds.broken) is not None:
            self._failure = self._failure or Failure(EXIT_TRY_AGAIN, error.message, error.hint)

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
            self._metrics.on_end(slot.name)
            self._requests[slot.name].on_end()
            self._failure = self._failure or failure
            return
        self._metrics.on_event(slot.name, report.event)
        if report.event["event"] == Event.METRICS:
            slot.heard()
            return  # from a thread of its own, which says nothing else of how the process is
        slot.on_event(report.event)
        if report.event["event"] == Event.ANSWER:
            self._requests[slot.name].on_answer(report.event)
        self._note_seconds(report)
        if slot.name == "driver":
            self._note_driver(report)
        if slot.name != "capture":
            return
        if report.event["event"] in (Event.READY, Event.CAUGHT_UP):
            self._open_keepers_if_possible()
        if report.event["event"] == Event.CAUGHT_UP and self._settings.once:
            self._log_end = Position.parse(str(report.event["log_end"]))
            slot.expect_end()
        self._reporter.on_capture_event(report.event)

    def _note_driver(self, report: ChildSaid) -> None:
        """Keeps when the driver was up, and which changefeeds failed. A new process tries these again."""
        if report.event["event"] == Event.READY:
            self._feeds.try_again(self._members["delivery"].names)
            if self._driver_ready_seconds is None:
                self._driver_ready_seconds = self._clock.monotonic() - self._started
        if report.event["event"] == Event.FAILED:
            event = report.event
            failure = Failure(int(event["code"]), str(event["message"]), str(event.get("hint", "")))
            self._feeds.fail(str(event["changefeed"]), failure)

    def _note_seconds(self, report: ChildSaid) -> None:
        """Keeps where the time of the driver and of delivery goes, for the summary."""
        seconds = report.event.get("stage_seconds")
        if isinstance(seconds, dict):
            self._stage_seconds[report.pid, str(report.event.get("changefeed"))] = seconds

    def _open_keepers_if_possible(self) -> None:
        """Opens the keepers once the log exists. An existing log is delivered even while the source does not answer."""
        if self._reporter.reader is not None:
            return
        try:
            reader = LogReader.open(self._settings.state_dir / "log", files=self._files)
        except Unavailable:
            return  # there is no log yet; capture makes it
        self._reporter.reader = reader
        self._feeds.open(reader)
        self._note = "; ".join(part for part in (self._note, *self._feeds.notes) if part)
        self._phase = "running"

    def _opened(self, maintainer: Maintainer) -> None:
        assert self._reporter.reader is not None
        self._reporter.watched[maintainer.keeper.name] = Watched.of(maintainer.keeper, self._reporter.reader)
        self._control.attach(maintainer)

    def _closed(self, name: str) -> None:
        self._control.detach(name)
        del self._reporter.watched[name]

    def _tell(self, name: str, call: Callable[[], None]) -> None:
        """Tells delivery what the keeper of the changefeed has durably; where it cannot be asked, a new run does. From a thread
        of `control.sock`."""
        try:
            call()
        except PenstockError:
            with contextlib.suppress(PenstockError):  # a driver that does not run begins with the keeper's facts anyway
                self._requests["driver"].ask({"op": "begin_again", "changefeed": name})

    def _try_again(self, name: str) -> bool:
        """Lets the changefeed begin again where it failed, or where tables stopped at its sink. Whether there was something
        to try. From a thread of `control.sock`."""
        failure = self._feeds.failed.pop(name, None)  # before it is asked for: it may fail again at once
        if failure is not None and not all(one.has(name) for one in self._members.values()):
            for one in self._members.values():  # a child refused it: it is asked again, in the order that is right
                one.forgive(name)
            return True
        if failure is not None:
            try:
                settings = self._feeds.settings[name]
                self._requests["driver"].ask({"op": "add", "changefeed": name, "settings": settings})
            except PenstockError:
                self._feeds.fail(name, failure)
                raise
            return True
        dispatchers = self._poll.latest.get("changefeeds", {}).get(name, {}).get("dispatchers", {})
        if not any(one.get("state") in ("stopped", "left out") for one in dispatchers.values()):
            return False
        self._requests["driver"].ask({"op": "begin_again", "changefeed": name})
        return True

    def _flush_to_the_end(self) -> None:
        """Flushes each changefeed that has published everything, instead of waiting for its sink's interval; again and
        again, because delivery may die meanwhile."""
        if self._log_end is None or not self._feeds.all_open:
            return
        now = self._clock.monotonic()
        if self._flush is not None and self._flush.over:
            self._note_stuck(self._flush)
            self._flush, self._flush_again_at = None, now + FLUSH_AGAIN_SECONDS
        if self._flush is None and now >= self._flush_again_at:
            feeds = self._feeds.maintainers.items()
            ready = [n for n, m in feeds if n not in self._feeds.failed and m.keeper.published_reached(self._log_end)]
            if ready:
                self._flush = self._delivery.flush(ready, 600.0)

    def _note_stuck(self, flush: Flush) -> None:
        """A changefeed has failed after some flushes with a terminal error: a table that stopped for good would keep `once`
        waiting for ever. The others still catch up."""
        for name in flush.changefeeds:
            error = flush.errors.get(name)
            stuck = self._flushes_stuck.get(name, 0) + 1 if error is not None and not error.transient else 0
            self._flushes_stuck[name] = stuck
            if error is not None and stuck >= ONCE_STUCK_MAX:
                self._feeds.fail(name, Failure(EXIT_SINK, error.message, error.hint))

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
        # What is published: rows of tables that are paused are meant to wait.
        return all(m.keeper.settled(m.keeper.published_end) for m in self._feeds.maintainers.values())

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
        """Waits until the driver has published every whole transaction of the log, however long it takes for one batch. One
        whose end is not in the log is never published, and capture, which could bring it, has ended."""
        reader, driver = self._reporter.reader, self._slots["driver"]
        if reader is None or self._failure is not None:
            return
        end = self._feeds.whole_end(reader)
        while driver.alive and self._slots["delivery"].alive and self._may_wait(deadline):
            active = self._feeds.active.values()
            if all(m.keeper.published_reached(end) or not m.keeper.backlog_bytes() for m in active):
                return
            self._handle_reports(TICK_SECONDS)
            self._show_status_if_due()

    def _flush_all(self, deadline: float) -> None:
        remaining = deadline - self._clock.monotonic()
        if not self._slots["delivery"].alive or not self._feeds.maintainers or remaining <= 0 or self._at_once:
            return
        flush = self._delivery.flush(list(self._feeds.maintainers), remaining)
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
        feeds, active = self._feeds.maintainers, self._feeds.active
        left = {name: m.keeper.backlog_bytes() for name, m in feeds.items()}
        # What was captured and never published is left too; of what is paused that is meant.
        end = self._reporter.reader.end() if self._reporter.reader is not None else None
        drained = drained and not any(left[name] and not (end and m.keeper.settled(end)) for name, m in active.items())
        if (found := self._failure or self._feeds.failure) is not None:
            failure = found
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
            mark_delete={name: str(m.keeper.mark_delete) for name, m in feeds.items()},
            left_bytes=left,
            paused=tuple(name for name, m in feeds.items() if m.keeper.paused_ms is not None),
            paused_tables={
                name: tuple(sorted(f"{one.schema}.{one.table}" for one in m.keeper.left_out.values()))
                for name, m in feeds.items()
                if m.keeper.left_out
            },
            failed={name: one.message for name, one in self._feeds.failed.items()},
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
            for name, document in child_documents(settings, self._feeds.settings).items()
        }
