"""`penstock verify`: is everything there, once, and right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import print_json, translate_errors
from penstock.cli.screen import say
from penstock.operations.config.loading import load
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_SOURCE

if TYPE_CHECKING:
    from penstock.operations.verify.report import VerifyReport


def verify(
    config: ConfigOption = DEFAULT_CONFIG,
    sink: Annotated[str | None, typer.Option(help="Only this sink.")] = None,
    source: Annotated[
        bool, typer.Option("--source/--no-source", help="Compare the final tables with the source too.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Compare every row at the sinks with the log, and the final tables with the source.

    Exit code 1: not equal, or changes are not delivered and no run is there to deliver them. Exit code 3: equal to the log, and the source could not be asked (--no-source leaves it out).
    """
    from penstock.operations.verify.verify import verify as verify_sinks

    with translate_errors(as_json=json):
        report = verify_sinks(load(config), sink=sink, with_source=source)
    if json:
        print_json(report.to_json())
    else:
        show_report(report)
    raise typer.Exit(exit_code(report))


def exit_code(report: VerifyReport) -> int:
    if not report.equal or report.left_behind:
        return EXIT_DIFFERENT
    return EXIT_SOURCE if report.source_error else EXIT_OK


def show_report(report: VerifyReport) -> None:
    """One line a sink, then its notes and what is wrong."""
    for sink in report.sinks:
        found = sink.differences
        with_source = (
            f"{sink.source_equal} of {sink.tables_count} tables equal to the source"
            if sink.compared_with_source
            else f"{sink.tables_count} tables, not compared with the source"
        )
        text = (
            f"{sink.name}: {with_source} · {found.changes:,} changes · {found.lost:,} lost · {found.doubled:,} doubled · "
            f"{found.wrong:,} wrong" + (f" · {found.pending:,} not delivered yet" if found.pending else "")
        )
        if sink.equal and (sink.source_error or found.pending):
            say("[yellow]![/] {}", text)
        else:
            say("[green]✓[/] {}" if sink.equal else "[bold red]✗[/] {}", text)
        for note in sink.notes:
            say("  [dim]{}[/]", note)
        for fault in sink.faults:
            say("  [red]{}[/]", fault)
    if report.left_behind:
        say("  no run is there to deliver the rest; penstock run goes on there")
