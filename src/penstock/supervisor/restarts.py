"""A child's slot in the run: the process that fills it now, and when the next one is started after a death.

States: starting (until `ready`) → running → waiting (dead; the next process is started after the backoff) → starting …;
stopping → stopped; failed (an error that does not heal: no process is started again, and the run ends).
The backoff doubles with each death, and begins anew when a process lived for `healthy_seconds`.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.errors import BadInput, Corruption, PenstockError, Unavailable, kind_named
from penstock.process import (
    EXIT_CONFIGURATION,
    EXIT_DIFFERENT,
    EXIT_SINK,
    EXIT_SOURCE,
    EXIT_TRY_AGAIN,
    METRICS_SECONDS,
    Event,
)
from penstock.supervisor.child import Child, Report
from penstock.supervisor.status import ChildState, ChildStatus

TERMINAL_EXIT_CODES = (EXIT_CONFIGURATION, EXIT_SOURCE, EXIT_SINK)  # the next process would end in the same way
_AGAIN = "; again in "
# Delivery is asked for its status about once a second, the driver says its metrics. Capture's silence is the source's affair
# (`health/source_health.py`).
SILENT_SECONDS_MAX = {"delivery": 10.0, "driver": 3 * METRICS_SECONDS}
_EXIT_CODE_OF_CHILD = {"capture": EXIT_SOURCE, "delivery": EXIT_SINK}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the run ends although nobody asked it to."""

    exit_code: int
    message: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Backoff:
    first_seconds: float
    seconds_max: float
    healthy_seconds: float

    def seconds(self, deaths: int) -> float:
        return min(self.seconds_max, self.first_seconds * 2.0 ** min(deaths - 1, 30))


class ChildSlot:
    """See the module's docstring. Used only by the thread of the run, but for `ask`."""

    def __init__(
        self,
        name: str,
        argv: tuple[str, ...],
        settings: dict[str, Any],
        *,
        run_dir: Path,
        reports: queue.Queue[Report],
        backoff: Backoff,
        clock: Clock,
    ) -> None:
        self.name = name
        self.state: ChildState = "stopped"
        self.restarts = 0
        self.deaths_in_a_row = 0
        self.ready_at: float | None = None  # when the process that runs now said `ready`
        self.heard_at = 0.0  # when it last said or answered anything
        self.note = ""
        self.feed_notes: dict[str, str] = {}  # by changefeed: what the process tries again for it alone
        self._argv = argv
        self.settings = settings  # of the next process
        self.started_with: dict[str, Any] = {}  # of the one that runs now
        self._run_dir = run_dir
        self._reports = reports
        self._backoff = backoff
        self._clock = clock
        self._process: Child | None = None
        self.started_at = 0.0
        self._due_at = 0.0
        self._last_error: dict[str, Any] = {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        return self._process is not None

    def status(self) -> ChildStatus:
        note = self.note or self.silence
        return ChildStatus(name=self.name, state=self.state, pid=self.pid, restarts=self.restarts, note=note)

    def start(self) -> None:
        self._last_error = {}
        self.feed_notes.clear()
        self.ready_at = None
        self.started_at = self.heard_at = self._clock.monotonic()
        self.started_with = dict(self.settings)
        try:
            self._process = Child(self.name, self._argv, self.started_with, self._run_dir, self._reports)
        except (OSError, Unavailable) as error:  # no process, thread, memory or descriptor just now: the others go on
            why = (error.strerror if isinstance(error, OSError) else error.message) or error
            self._start_later(f"cannot be started: {why}")
        else:
            self.state = "starting"

    def heard(self) -> None:
        """The process said or answered something. From any thread."""
        self.heard_at = self._clock.monotonic()

    @property
    def silence(self) -> str:
        """That a process which should have been heard of was not, and what to do; else empty."""
        seconds, most = self._clock.monotonic() - self.heard_at, SILENT_SECONDS_MAX.get(self.name)
        if self.state != "running" or most is None or seconds <= most:
            return ""
        return f"has said nothing for {seconds:.0f} s; if it hangs, kill -9 {self.pid} lets another one begin"

    def start_if_due(self) -> None:
        if self.state == "waiting" and self._clock.monotonic() >= self._due_at:
            self.restarts += 1
            self.start()

    def on_event(self, event: dict[str, Any]) -> None:
        self.heard()
        name = event["event"]
        if name == Event.READY and self.state == "starting":
            self.state = "running"
            self.ready_at = self._clock.monotonic()
            self.note = ""
        elif name == Event.ERROR:
            self._last_error = event
        elif name == Event.RETRYING:  # the child lives and tries again by itself
            attempt = f"; attempt {event['attempt']}" if "attempt" in event else ""
            self.note = f"tries again: {event.get('message', '')}{attempt}"
        elif name == Event.RESTART:
            self.feed_notes[str(event.get("changefeed"))] = f"tries again: {event.get('message', '')}"
        elif name in {Event.PROGRESS, Event.CAUGHT_UP, Event.FAILED}:
            self.note = ""
            self.feed_notes.pop(str(event.get("changefeed")), None)

    def on_end(self, code: int) -> Failure | None:
        """The process is gone. Returns a failure if starting another would not help; else one is started after the
        backoff."""
        self._process = None
        lived = self._clock.monotonic() - self.started_at
        if self.state in {"stopping", "stopped"}:
            self.state = "stopped"
            return None
        failure = self._failure(code)
        if failure is not None:
            self.state = "failed"
            self.note = failure.message
            return failure
        if lived >= self._backoff.healthy_seconds:
            self.deaths_in_a_row = 0
        words = self._last_error.get("message") or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        self._start_later(f"ended: {words}")
        return None

    def _start_later(self, why: str) -> None:
        self.deaths_in_a_row += 1
        wait = self._backoff.seconds(self.deaths_in_a_row)
        self._due_at = self._clock.monotonic() + wait
        self.state = "waiting"
        self.note = f"{why}{_AGAIN}{wait:.1f} s"

    def give_up(self) -> Failure:
        """While the next process is waited for: none is started any more, though it might do better. The failure says why the
        last one ended."""
        self.state = "failed"
        self.note = self.note.partition(_AGAIN)[0]
        log = self._run_dir / f"{self.name}.log"
        return Failure(
            EXIT_TRY_AGAIN,
            f"{self.name} {self.note}, {self.deaths_in_a_row} time{'s' * (self.deaths_in_a_row > 1)} in a row",
            str(self._last_error.get("hint") or f"its log is {log}"),
        )

    def ask(self, request: dict[str, Any]) -> bool:
        """Sends the request to the process; False if none works now. From any thread. Raises what `Child.ask` raises."""
        process = self._process
        if process is None or self.state != "running":
            return False
        process.ask(request)
        return True

    def expect_end(self) -> None:
        """The process has done its work: its end is not a death."""
        self.state = "stopped" if self._process is None else "stopping"

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self.state = "stopping"
            self._process.ask_to_stop()
        elif self.state != "failed":
            self.state = "stopped"

    def kill(self) -> None:
        if self._process is not None:
            self.state = "stopping"
            self._process.kill()

    def _failure(self, code: int) -> Failure | None:
        kind = kind_named(str(self._last_error.get("kind"))) or PenstockError
        if code not in TERMINAL_EXIT_CODES:
            if not issubclass(kind, (BadInput, Corruption)):
                return None
            code = (
                EXIT_CONFIGURATION if issubclass(kind, BadInput) else _EXIT_CODE_OF_CHILD.get(self.name, EXIT_DIFFERENT)
            )
        log = self._run_dir / f"{self.name}.log"
        return Failure(
            code,
            str(self._last_error.get("message") or f"{self.name} ended with exit code {code}"),
            str(self._last_error.get("hint") or (f"see {log}" if not self._last_error else "")),
        )
