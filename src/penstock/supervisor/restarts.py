"""A child's place in the run: the process that fills it now, and when a new one does after a death.

States: starting (until it says ready) → running → waiting (dead, a new one comes after the backoff) → starting …;
stopping → stopped; failed (it reported an error that does not heal: nobody starts it again).
The backoff doubles with each death and starts anew after a healthy minute.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import errors
from penstock.clock import Clock
from penstock.errors import BadInput, Corruption
from penstock.supervisor.child import Process, Report
from penstock.supervisor.status import ChildState, ChildStatus

TERMINAL_EXIT_CODES = (2, 3, 4)  # configuration, source, sink: another start would end the same way
_EXIT_CODE_OF_CHILD = {"capture": 3, "delivery": 4}


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
    """Used by the run's own thread alone."""

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
        self.ready_at: float | None = None  # of the process that runs now
        self.note = ""
        self._argv = argv
        self._settings = settings
        self._run_dir = run_dir
        self._reports = reports
        self._backoff = backoff
        self._clock = clock
        self._process: Process | None = None
        self.started_at = 0.0
        self._due_at = 0.0
        self._last_words: dict[str, Any] = {}

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def alive(self) -> bool:
        return self._process is not None

    def status(self) -> ChildStatus:
        return ChildStatus(name=self.name, state=self.state, pid=self.pid, restarts=self.restarts, note=self.note)

    def start(self) -> None:
        self._last_words = {}
        self.ready_at = None
        self.started_at = self._clock.monotonic()
        self._process = Process(self.name, self._argv, self._settings, self._run_dir, self._reports)
        self.state = "starting"

    def start_if_due(self) -> None:
        if self.state == "waiting" and self._clock.monotonic() >= self._due_at:
            self.restarts += 1
            self.start()

    def said(self, event: dict[str, Any]) -> None:
        if event["event"] == "ready" and self.state == "starting":
            self.state = "running"
            self.ready_at = self._clock.monotonic()
            self.note = ""
        elif event["event"] == "error":
            self._last_words = event
        elif event["event"] in {"retrying", "restart"}:  # the child lives and helps itself
            attempt = f"; attempt {event['attempt']}" if "attempt" in event else ""
            self.note = f"tries again: {event.get('message', '')}{attempt}"
        elif event["event"] in {"progress", "caught-up"}:
            self.note = ""

    def ended(self, code: int) -> Failure | None:
        """The process is gone. A failure, where a new one would not help; else one is due after the backoff."""
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
        self.deaths_in_a_row = 1 if lived >= self._backoff.healthy_seconds else self.deaths_in_a_row + 1
        wait = self._backoff.seconds(self.deaths_in_a_row)
        self._due_at = self._clock.monotonic() + wait
        self.state = "waiting"
        words = self._last_words.get("message") or (f"killed by signal {-code}" if code < 0 else f"exit code {code}")
        self.note = f"ended: {words}; again in {wait:.1f} s"
        return None

    def finished(self) -> None:
        """It has done its work: its end is no death."""
        self.state = "stopped" if self._process is None else "stopping"

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self.state = "stopping"
            self._process.ask_to_stop()
        elif self.state != "failed":
            self.state = "stopped"

    def kill(self, *, restart: bool = False) -> None:
        """Ends it now; with `restart` that counts as any other death."""
        if self._process is not None:
            if not restart:
                self.state = "stopping"
            self._process.kill()

    def _failure(self, code: int) -> Failure | None:
        kind = getattr(errors, str(self._last_words.get("kind")), None)
        terminal_kind = isinstance(kind, type) and issubclass(kind, (BadInput, Corruption))
        if code not in TERMINAL_EXIT_CODES and not terminal_kind:
            return None
        if code not in TERMINAL_EXIT_CODES:
            code = 2 if isinstance(kind, type) and issubclass(kind, BadInput) else _EXIT_CODE_OF_CHILD.get(self.name, 1)
        log = self._run_dir / f"{self.name}.log"
        return Failure(
            code,
            str(self._last_words.get("message") or f"{self.name} ended with exit code {code}"),
            str(self._last_words.get("hint") or (f"see {log}" if not self._last_words else "")),
        )
