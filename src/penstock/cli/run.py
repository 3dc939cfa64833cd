"""`penstock run`: the flow itself, and the live line of a run: what moves, how fast, how far behind."""

from __future__ import annotations

import logging
from dataclasses import asdict
from types import TracebackType
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from penstock import __version__
from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import human_bytes, human_seconds, load_words, print_error, print_json, translate_errors
from penstock.cli.screen import console, say, warn
from penstock.observe.shown import shown
from penstock.operations.adopt import adopt_sinks
from penstock.operations.config.loading import load
from penstock.operations.config.model import exposure_of, run_settings
from penstock.operations.extras import require_extras
from penstock.secret import harmless
from penstock.supervisor.status import RunStatus, RunSummary

log = logging.getLogger(__name__)


def run(
    config: ConfigOption = DEFAULT_CONFIG,
    once: Annotated[
        bool, typer.Option("--once", help="Catch up to the source's position at start, flush, and end.")
    ] = False,
    adopt: Annotated[
        list[str] | None,
        typer.Option(
            "--adopt",
            metavar="NAME",
            help="This sink takes over its prefix, which holds files of another feed, or has lost its own.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Copy changes from the source to the sinks until stopped.

    Ctrl-C drains: what was read is delivered, then everything ends. A second Ctrl-C ends at once; nothing is lost
    either way, the next run goes on where this one was.
    """
    from penstock.supervisor.supervisor import run as run_flow

    with translate_errors(as_json=json):
        loaded = load(config)
        require_extras(loaded)
        for name in adopt_sinks(loaded, adopt or []):
            message = f"{name} has taken over {harmless(loaded.sinks[name].url)}"
            log.warning(message) if json else warn(message)
        settings = run_settings(loaded, once=once)
        if not json:
            names = ", ".join(f"{name} ({sink.format})" for name, sink in loaded.sinks.items())
            say("Penstock {} · {} → {} · Ctrl-C drains and stops", __version__, loaded.source.type, names)
        if exposure := exposure_of(loaded):
            log.warning(exposure) if json else warn(exposure)
        with RunScreen(as_json=json) as screen:
            summary = run_flow(settings, on_progress=screen.update)
    show_summary(summary, as_json=json)
    raise typer.Exit(summary.exit_code)


def show_summary(summary: RunSummary, *, as_json: bool) -> None:
    """How the run ended."""
    if as_json:
        print_json({"event": "summary", **asdict(summary)})
    if summary.exit_code:
        print_error("RunFailed", summary.message, summary.hint, as_json=as_json)
    if as_json:
        return
    say(
        "  {}" if summary.exit_code else "[green]✓[/] {}" if summary.drained else "[yellow]![/] {}",
        f"{summary.rows:,} rows in {summary.files} files, {human_bytes(summary.bytes)}, {human_seconds(summary.seconds)}",
    )
    show_left(summary)


def show_left(summary: RunSummary) -> None:
    """What the log holds that is not at its sink: never a green mark over rows that did not arrive."""
    for name, left in summary.left_bytes.items():
        if left:
            say("  {}: {} of the log are not at the sink yet; the next run goes on there", name, human_bytes(left))
    if not summary.drained and not any(summary.left_bytes.values()):
        say("  stopped before everything was flushed; the next run goes on there")


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
        self._note = ""

    def __enter__(self) -> RunScreen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, template: str, *values: object) -> None:
        """A line that stays."""
        if not self._json:
            say(template, *values)

    def update(self, status: RunStatus) -> None:
        """Shows the status now, and each restart of a child once."""
        if self._json:
            print_json({"event": "progress", **status.model_dump(mode="json")})
            return
        if status.note and status.note != self._note:
            self._note = status.note
            self.say("  [yellow]![/] {}", status.note)
        for child in status.children:
            if child.restarts > self._said.get(child.name, 0):
                self._said[child.name] = child.restarts
                why = f": {child.note}" if child.note else ""
                self.say("  [yellow]![/] {} ended and was started again{}", child.name, why)
        if not self._started and status.phase == "running" and all(c.state == "running" for c in status.children):
            self._started = True
            self.say("  [green]✓[/] everything is up after {} s", f"{(status.now_ms - status.started_ms) / 1000:.1f}")
        if self._last is not None and status.now_ms > self._last.now_ms:
            fresh = (status.rows - self._last.rows) * 1000 / (status.now_ms - self._last.now_ms)
            self._rate = max(0.0, 0.5 * self._rate + 0.5 * fresh)
        line = self.line(status)
        if self._live:
            self._live.update(Text(shown(line)))
        elif self._last is None or status.rows != self._last.rows or status.phase != self._last.phase:
            say("{}", line)
        self._last = status

    def line(self, status: RunStatus) -> str:
        """`streaming  41,200 rows/s · lag 1.2 s · 38 files · 96.0 MiB`."""
        phase = {"running": "streaming"}.get(status.phase, status.phase)
        load = status.source.load
        if load is not None and load.done < load.tables and status.phase == "running":
            phase = f"loading {load_words(load)} ·"
        return (
            f"  {phase}  {status.rows:,} rows · {self._rate:,.0f} rows/s · lag {human_seconds(status.lag_seconds)} · "
            f"{status.files} files · {human_bytes(status.bytes)}"
        )
