"""The live line of a run: what moves, how fast, how far behind."""

from __future__ import annotations

from types import TracebackType

from rich.live import Live
from rich.text import Text

from penstock.cli.formatting import human_bytes, human_seconds
from penstock.cli.output import console, print_json
from penstock.supervisor.status import RunStatus


class RunScreen:
    """Displays the status of a run: one changing line on a terminal, plain lines in a file, JSON lines on request."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if not as_json and console.is_terminal else None
        )
        self._last: RunStatus | None = None
        self._rate = 0.0
        self._said: dict[str, int] = {}
        self._started = False

    def __enter__(self) -> RunScreen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self._json:
            console.print(text, soft_wrap=True)

    def update(self, status: RunStatus) -> None:
        """Shows the status now, and each restart of a child once."""
        if self._json:
            print_json({"event": "progress", **status.model_dump(mode="json")})
            return
        for child in status.children:
            if child.restarts > self._said.get(child.name, 0):
                self._said[child.name] = child.restarts
                self.say(
                    f"  [yellow]![/] {child.name} ended and was started again{': ' + child.note if child.note else ''}"
                )
        if not self._started and status.phase == "running" and all(c.state == "running" for c in status.children):
            self._started = True
            self.say(f"  [green]✓[/] everything is up after {(status.now_ms - status.started_ms) / 1000:.1f} s")
        if self._last is not None and status.now_ms > self._last.now_ms:
            fresh = (status.rows - self._last.rows) * 1000 / (status.now_ms - self._last.now_ms)
            self._rate = max(0.0, 0.5 * self._rate + 0.5 * fresh)
        line = self.line(status)
        if self._live:
            self._live.update(Text(line))
        elif self._last is None or status.rows != self._last.rows or status.phase != self._last.phase:
            console.print(line, soft_wrap=True)
        self._last = status

    def line(self, status: RunStatus) -> str:
        """`streaming  41,200 rows/s · lag 1.2 s · 38 files · 96.0 MiB`."""
        phase = {"running": "streaming"}.get(status.phase, status.phase)
        return (
            f"  {phase}  {status.rows:,} rows · {self._rate:,.0f} rows/s · lag {human_seconds(status.lag_seconds)} · "
            f"{status.files} files · {human_bytes(status.bytes)}"
        )
