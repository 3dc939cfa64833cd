"""`penstock verify`: is everything there, once, and right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import counted, print_json, translate_errors
from penstock.cli.screen import complaints, say, tell
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.observe.shown import shown
from penstock.operations.config.loading import load
from penstock.process import EXIT_DIFFERENT, EXIT_HELD_BACK, EXIT_OK, EXIT_SOURCE

if TYPE_CHECKING:
    from penstock.operations.verify.report import VerifyReport

_LINE_MS = 10_000


def verify(
    config: ConfigOption = DEFAULT_CONFIG,
    sink: Annotated[str | None, typer.Option(help="Only this sink.")] = None,
    source: Annotated[
        bool, typer.Option("--source/--no-source", help="Compare the final tables with the source too.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Compare every row at the sinks with the log, and the final tables with the source.

    Exit code 1: not equal. Exit code 7: nothing differs, but rows are held back (a parked table, say), or are not delivered and no run is there to deliver them, or nothing was compared. Exit code 3: equal to the log, and the source could not be asked (--no-source leaves it out).
    """
    from penstock.operations.verify.verify import verify as verify_sinks

    with translate_errors(as_json=json), VerifyScreen(silent=json) as screen:
        loaded = load(config, asks_source=source)
        report = verify_sinks(loaded, sink=sink, with_source=source, progress=screen.update)
    if json:
        print_json(report.to_json())
    else:
        show_report(report)
    raise typer.Exit(exit_code(report))


class VerifyScreen:
    """How far verify is: a bar on a terminal; otherwise, on standard error, a line at most every ten seconds."""

    def __init__(self, *, silent: bool, clock: Clock = SYSTEM_CLOCK) -> None:
        self._silent = silent
        self._clock = clock
        self._said_ms = clock.wall_ms()
        self._bar: Progress | None = None
        if not silent and complaints.is_terminal:
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
            self._bar = Progress(*columns, TimeElapsedColumn(), console=complaints, transient=True)
        self._task: TaskID | None = None

    def __enter__(self) -> VerifyScreen:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, what: str, done: int, count: int) -> None:
        """Shows what is compared now, and how much of how much of it is done."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=shown(what), completed=done, total=count)
            return
        now = self._clock.wall_ms()
        if not self._silent and now - self._said_ms >= _LINE_MS:
            self._said_ms = now
            tell("  comparing {}: {} %", what, 100 * done // max(count, 1))


def exit_code(report: VerifyReport) -> int:
    if not report.equal:
        return EXIT_DIFFERENT
    if report.held_back:
        return EXIT_HELD_BACK
    return EXIT_SOURCE if report.source_error else EXIT_OK


def show_report(report: VerifyReport) -> None:
    """One line a sink, then its notes, what is held back and what is wrong."""
    for sink in report.sinks:
        found = sink.differences
        with_source = (
            f"{sink.source_equal} of {sink.tables_count} tables equal to the source"
            if sink.compared_with_source
            else f"{counted(sink.tables_count, 'table')}, not compared with the source"
        )
        text = (
            f"{sink.name}: {with_source} · {found.changes:,} changes · {found.lost:,} lost · {found.doubled:,} doubled · "
            f"{found.wrong:,} wrong"
            + (f" · {found.misplaced:,} out of order" if found.misplaced else "")
            + (f" · {found.unknown:,} unknown" if found.unknown else "")
            + (f" · {found.pending:,} not delivered yet" if found.pending else "")
        )
        if sink.equal and not sink.whole:
            say("[yellow]![/] {}", text)
        else:
            say("[green]✓[/] {}" if sink.equal else "[bold red]✗[/] {}", text)
        for note in sink.notes:
            say("  [dim]{}[/]", note)
        for held in (*sink.loading, *sink.held):
            say("  [yellow]{}[/]", held)
        for fault in sink.faults:
            say("  [red]{}[/]", fault)
    if report.left_behind:
        say("  no run is there to deliver the rest; penstock run goes on there")
