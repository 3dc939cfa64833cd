"""`penstock verify`: is everything there, once, and right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import EXIT_DIFFERENT, console, print_json, translate_errors
from penstock.operations.config.loading import load

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
    """Compare every row at the sinks with the log, and the final tables with the source. Exit code 1: not equal."""
    from penstock.operations.verify.verify import verify as verify_sinks

    with translate_errors(as_json=json):
        report = verify_sinks(load(config), sink=sink, with_source=source)
    if json:
        print_json(report.to_json())
    else:
        show_report(report)
    raise typer.Exit(0 if report.equal else EXIT_DIFFERENT)


def show_report(report: VerifyReport) -> None:
    """One line a sink, then its notes and what is wrong."""
    for sink in report.sinks:
        found = sink.differences
        mark = "[green]✓[/]" if sink.equal else "[bold red]✗[/]"
        with_source = (
            f"{sink.source_equal} of {sink.tables_count} tables equal to the source"
            if sink.compared_with_source
            else f"{sink.tables_count} tables, not compared with the source"
        )
        console.print(
            f"{mark} {sink.name}: {with_source} · {found.changes:,} changes · {found.lost:,} lost · {found.doubled:,} doubled · "
            f"{found.wrong:,} wrong" + (f" · {found.pending:,} on their way" if found.pending else ""),
            soft_wrap=True,
        )
        for note in sink.notes:
            console.print(f"  [dim]{note}[/]", soft_wrap=True)
        for fault in sink.faults:
            console.print(f"  [red]{fault}[/]", soft_wrap=True)
