"""Whether the source is well, from what capture says and from what it does not say.

Capture reports about once a second, and a server sends something every second, a heartbeat if there is nothing else. So
silence of either is a fault, though nobody reports an error: a server that is stopped, a network that swallows packets, a
capture process that hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.kernels.compiled import are_compiled
from penstock.process import Event
from penstock.supervisor.restarts import ChildSlot

SILENT_SECONDS_MAX = 6.0  # of a source that sends something every second, and of capture's reports
STARTING_SECONDS_MAX = 10.0  # of a capture process, with the time that a connection may take
# Of a new installation: capture compiles the inner loops that it comes to, and says nothing meanwhile.
COMPILING_SECONDS_MAX = 120.0
_WITH_HEARTBEATS = ("mariadb", "mysql")


class SourceHealth:
    """Used only by the thread of the run."""

    def __init__(
        self, source_type: str, capture: ChildSlot, clock: Clock, compiled: Callable[[], bool] = are_compiled
    ) -> None:
        self._beats = source_type in _WITH_HEARTBEATS
        self._capture = capture
        self._clock = clock
        self._compiled = compiled
        self.heard_ms: int | None = None  # when the source sent something last
        self._heard_at: float | None = None  # the same by the clock that never jumps, as of the report that said so
        self._reported_at: float | None = None
        self._retrying = ""
        self._paused = ""
        self._ended = False

    def on_event(self, event: dict[str, Any]) -> None:
        """Takes in what capture said."""
        kind, now = event["event"], self._clock.monotonic()
        self._reported_at = now
        if kind == Event.RETRYING:
            attempt = f" (attempt {event['attempt']})" if "attempt" in event else ""
            self._retrying = f"{event.get('message') or 'it does not answer'}{attempt}"
            return
        if kind not in {Event.PROGRESS, Event.CAUGHT_UP}:
            return
        self._ended = kind == Event.CAUGHT_UP
        self._paused = str(event.get("paused") or "")
        heard_ms = event.get("heard_ms")
        if not isinstance(heard_ms, int):
            return
        if heard_ms != self.heard_ms or self._heard_at is None:
            self.heard_ms, self._heard_at = heard_ms, now
            self._retrying = ""

    @property
    def paused(self) -> str:
        """Why capture reads nothing although the source is there; empty while it reads."""
        return self._paused if self._capture.state == "running" else ""

    def problem(self) -> str:
        """What is wrong with the source, or with reading it; empty where nothing is."""
        slot = self._capture
        if slot.state in ("waiting", "failed"):
            return f"capture {slot.note}" if slot.note else "capture does not run"
        if self._paused:
            return f"capture is paused: {self._paused}"
        if self._retrying:
            return self._retrying
        if slot.state not in ("starting", "running") or self._ended:
            return ""
        now, started = self._clock.monotonic(), slot.started_at
        if slot.state == "starting":  # its imports take a while too
            silent = now - max(started, self._heard_at or 0.0)
            return f"it has not answered for {silent:.0f} s" if self._beats and silent > STARTING_SECONDS_MAX else ""
        began = slot.ready_at or started
        silent = now - max(began, self._reported_at or 0.0)
        if silent > SILENT_SECONDS_MAX and (now - started > COMPILING_SECONDS_MAX or self._compiled()):
            return f"capture has said nothing for {silent:.0f} s"
        reported = max(began, self._reported_at or 0.0)  # what came after that, only the next report can say
        silent = reported - max(began, self._heard_at or 0.0)
        if self._beats and silent > SILENT_SECONDS_MAX:
            return f"nothing came from it for {silent:.0f} s, not even a heartbeat"
        return ""
