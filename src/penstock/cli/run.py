"""`penstock run`: the flow itself, and the live view of a run: what moves, how fast, how far behind."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import TracebackType
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from penstock import __version__
from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import (
    counted,
    human_bytes,
    human_seconds,
    load_words,
    print_error,
    print_json,
    translate_errors,
)
from penstock.cli.screen import console, outliving_terminal, say, warn
from penstock.kernels.compiled import are_compiled, note_compiled
from penstock.observe.shown import shown
from penstock.operations.adopt import adopt_sinks
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config, exposures_of, run_settings
from penstock.operations.extras import require_extras
from penstock.operations.plan.record import recorded_settings
from penstock.operations.rows_left import RowsLeft, count_rows_left
from penstock.process import EXIT_LEFT
from penstock.schema.quoting import shell_word
from penstock.secret import harmless
from penstock.supervisor.settings import RunSettings
from penstock.supervisor.status import RunStatus, RunSummary

log = logging.getLogger(__name__)

_IN_TROUBLE = ("recovering", "failed")
_NUMBERS = re.compile(r"\d+")
_TERMINAL_COLUMNS = 80
COLUMNS = 77  # more than a line of the live view has: with the ^C that a terminal prints behind it, it fits 80


def run(  # noqa: PLR0917
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
    recover_from_sink: Annotated[
        bool,
        typer.Option(
            "--recover-from-sink",
            help="The state directory was lost: make it anew from what the sinks say of themselves, and go on there.",
        ),
    ] = False,
    accept_doubled: Annotated[
        bool,
        typer.Option("--accept-doubled", help="Recover also where that writes some rows twice; it says which."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy changes from the source to the sinks until stopped.

    Ctrl-C, SIGTERM and a terminal that is closed drain: what was read is delivered, then everything ends. Where that takes too long, the end says how many
    changes are left, with an exit code of its own. A second Ctrl-C ends at once; nothing is lost either way, the next run
    goes on where this one was.
    """
    from penstock.supervisor.supervisor import run as run_flow

    with translate_errors(as_json=json):
        loaded = load(config)
        require_extras(loaded)

        def read_again() -> RunSettings:
            nonlocal loaded
            wanted = load(config)
            require_extras(wanted)
            loaded = wanted
            return _settings(loaded, once=once)

        for name in adopt_sinks(loaded, adopt or []):
            message = f"{name} has taken over {harmless(loaded.sinks[name].url)}"
            log.warning(message) if json else warn(message)
        if recover_from_sink:
            _recover(loaded, accept_doubled=accept_doubled, as_json=json)
        settings = _settings(loaded, once=once)
        if not json:
            say("{}", heading(loaded.source.type, {name: sink.format for name, sink in loaded.sinks.items()}))
        for exposure in exposures_of(loaded):
            log.warning(exposure) if json else warn(exposure)
        with RunScreen(as_json=json) as screen:
            summary = run_flow(settings, on_progress=screen.update, read_again=read_again)
    behind = [name for name, left in summary.left_bytes.items() if left and name in loaded.sinks]
    rows = count_rows_left(loaded, summary.mark_delete, behind) if behind else {}
    with outliving_terminal():
        show_summary(summary, rows, as_json=json)
    raise typer.Exit(summary.exit_code)


def heading(source: str, formats: Mapping[str, str]) -> str:
    """What a run copies to where, in a line of at most 80 columns if the first sink's name lets it."""
    names = [f"{name} ({of})" for name, of in formats.items()]
    for count in range(len(names), 0, -1):
        more = f" and {len(names) - count} more" if count < len(names) else ""
        line = f"Penstock {__version__} · {source} → {', '.join(names[:count])}{more} · Ctrl-C drains"
        if len(line) <= _TERMINAL_COLUMNS:
            break
    return line


def _recover(loaded: Config, *, accept_doubled: bool, as_json: bool) -> None:
    from penstock.operations.recover import recover_from_sinks

    def note(line: str) -> None:
        log.warning("%s", line) if as_json else say("  {}", line)

    found = recover_from_sinks(loaded, accept_doubled=accept_doubled, say=note)
    for name, kept in found.kept.items():
        note(f"{name} goes on after {found.position}; {counted(kept, 'change')} beyond it are there already")
    for line in found.doubled:
        log.warning("written twice: %s", line) if as_json else warn(f"written twice: {line}")


def _settings(loaded: Config, *, once: bool) -> RunSettings:
    return replace(run_settings(loaded, once=once), record=recorded_settings(loaded))


def show_summary(summary: RunSummary, rows_left: Mapping[str, RowsLeft] | None = None, *, as_json: bool) -> None:
    """How the run ended."""
    left = rows_left or {}
    if as_json:
        rows = {name: one.rows for name, one in left.items()}
        print_json({"event": "summary", **asdict(summary), "left_rows": rows})
    if summary.exit_code and summary.exit_code != EXIT_LEFT:
        print_error("RunFailed", summary.message, summary.hint, as_json=as_json)
    if as_json:
        return
    say(
        "  {}" if summary.exit_code else "[green]✓[/] {}" if summary.drained else "[yellow]![/] {}",
        f"{counted(summary.rows, 'row')} in {counted(summary.files, 'file')}, {human_bytes(summary.bytes)}, {human_seconds(summary.seconds)}",
    )
    show_left(summary, left)
    if summary.exit_code == EXIT_LEFT:
        say("exit {} ({})", EXIT_LEFT, summary.message)


def show_left(summary: RunSummary, rows_left: Mapping[str, RowsLeft] | None = None) -> None:
    """What the log holds that is not at its sink: never a green mark over rows that did not arrive."""
    for name, left in summary.left_bytes.items():
        counted_rows = (rows_left or {}).get(name)
        if not left:
            continue
        if name in summary.failed:
            say("  {} stood still; {} of the log wait for it: {}", name, human_bytes(left), summary.failed[name])
            continue
        if name in summary.paused:
            say("  {} is paused; {} of the log wait for `penstock resume {}`", name, human_bytes(left), name)
            continue
        if summary.drained and (tables := summary.paused_tables.get(name)):
            more = f" and {len(tables) - 1} more are" if len(tables) > 1 else " is"
            command = f"penstock resume {name} --table {shell_word(tables[0])}"
            say("  {}: {}{} paused; {} of the log wait for `{}`", name, tables[0], more, human_bytes(left), command)
            continue
        what = f"{human_bytes(left)} of the log"
        if counted_rows is not None and (counted_rows.rows or counted_rows.complete):
            bound = "up to" if counted_rows.complete else "more than"
            what = f"{bound} {counted_rows.rows:,} changes, {what},"
        say("  {}: {} are not at the sink yet; the next run goes on there", name, what)
    if not summary.drained and not any(summary.left_bytes.values()):
        say("  stopped before everything was flushed; the next run goes on there")


class RunScreen:
    """Displays the status of a run: a changing line for each sink on a terminal, plain lines in a file, JSON lines on request."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if not as_json and console.is_terminal else None
        )
        self._last: RunStatus | None = None
        self._rates: dict[str, float] = {}
        self._said: dict[str, int] = {}
        self._started = False
        self._note = ""
        self._troubles: dict[str, str] = {}
        self._compiled = are_compiled()

    def __enter__(self) -> RunScreen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            with outliving_terminal():
                self._live.stop()

    def say(self, template: str, *values: object) -> None:
        """A line that stays."""
        if not self._json:
            say(template, *values)

    def update(self, status: RunStatus) -> None:
        """Shows the status now, and each restart of a child once."""
        with outliving_terminal():
            self._show(status)

    def _show(self, status: RunStatus) -> None:
        if status.rows and not self._compiled:
            self._compiled = True
            note_compiled()
        if self._json:
            print_json({"event": "progress", **status.model_dump(mode="json")})
            return
        if self._last is None and not self._compiled:
            self.say("  compiling inner loops, once for this installation: the first rows take longer than later ones")
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
        self._say_troubles(status)
        self._note_rates(status)
        if self._live:
            # Cut, not wrapped: lines that wrap are more lines than Rich goes back over, and stay when the window shrinks.
            lines = Text("\n".join(shown(line) for line in self.lines(status)), no_wrap=True, overflow="ellipsis")
            self._live.update(lines)
        elif self._last is None or status.rows != self._last.rows or status.phase != self._last.phase:
            for line in self.lines(status):
                say("{}", line)
        self._last = status

    def _say_troubles(self, status: RunStatus) -> None:
        """What is wrong with the source or a sink, in full, once until it is over: the changing line cuts it, and in a file
        there is none while no row arrives. Another attempt at the same thing is nothing new."""
        now = {feed.name: feed.note for feed in status.changefeeds if feed.note and feed.state in _IN_TROUBLE}
        if status.source.problem:
            now["source"] = status.source.problem
        for name, note in now.items():
            what = _NUMBERS.sub("", note)
            if self._troubles.get(name) != what:
                self._troubles[name] = what
                self.say("  [yellow]![/] {}: {}", name, note)
        for name in [name for name in self._troubles if name not in now]:
            del self._troubles[name]
            if status.phase == "running":
                self.say("  [green]✓[/] {} is well again", name)

    def _note_rates(self, status: RunStatus) -> None:
        last = self._last
        if last is None or status.now_ms <= last.now_ms:
            return
        before = {feed.name: feed.rows for feed in last.changefeeds}
        for feed in status.changefeeds:
            fresh = (feed.rows - before.get(feed.name, 0)) * 1000 / (status.now_ms - last.now_ms)
            self._rates[feed.name] = max(0.0, 0.5 * self._rates.get(feed.name, 0.0) + 0.5 * fresh)

    def lines(self, status: RunStatus) -> list[str]:
        """One for the source if it is not well, one for a load, and one for each sink, within 80 columns:
        `  lake      streaming   41,200 rows/s · lag 1.2 s · 38 files · 96.0 MiB`."""
        found = [f"  source    {status.source.problem}"] if status.source.problem else []
        load = status.source.load
        if load is not None and load.done < load.tables and status.phase == "running":
            found.append(f"  loading   {load_words(load)}")
        width = max((len(feed.name) for feed in status.changefeeds), default=0)
        for feed in status.changefeeds:
            state = {"running": "streaming"}.get(feed.state, feed.state)
            figures = (
                f"{self._rates.get(feed.name, 0.0):,.0f} rows/s · lag {human_seconds(feed.lag_seconds)} · "
                f"{counted(feed.files, 'file')} · {human_bytes(feed.bytes)}"
            )
            note = f" · {feed.note}" if feed.note and feed.state != "running" else ""
            found.append(f"  {feed.name:<{min(width, 20)}}  {state:<10} {figures}{note}")
        return [line if len(line) < COLUMNS else f"{line[: COLUMNS - 2]}…" for line in found]
