"""`penstock demo`: see it work, on this machine, in a minute, with nothing to set up."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock import __version__
from penstock.cli.options import JsonOption
from penstock.cli.output import human_bytes, human_seconds, print_json, translate_errors
from penstock.cli.run import RunScreen, show_left, show_summary
from penstock.cli.screen import add_row, say, say_table
from penstock.cli.verify import exit_code, show_report
from penstock.observe.shown import shown
from penstock.operations.extras import require_spark
from penstock.process import EXIT_INTERRUPTED, EXIT_OK

if TYPE_CHECKING:
    import pyarrow as pa


def demo(
    directory: Annotated[Path, typer.Option(help="Where the demo lives; an earlier demo there is replaced.")] = Path(
        "penstock-demo"
    ),
    seconds: Annotated[int, typer.Option(min=1, max=3600, help="How long the shop is open.")] = 30,
    rate: Annotated[int, typer.Option(min=100, max=1_000_000, help="Row changes per second.")] = 20_000,
    json: JsonOption = False,
) -> None:
    """Stream a small shop's changes into Parquet files, kill a process on the way, and verify every row."""
    from penstock.operations.demo import Demo
    from penstock.operations.verify.verify import verify as verify_sinks

    with translate_errors(as_json=json):
        require_spark()
        with RunScreen(as_json=json) as screen:
            demonstration = Demo.prepare(directory, seconds=seconds, rate=rate, say=screen.say)
            screen.say(
                "Penstock {} · demo shop → {} (parquet) · {} s, Ctrl-C stops early",
                *(__version__, directory, seconds),
            )
            summary = demonstration.run(screen.update)
        if summary.exit_code not in (EXIT_OK, EXIT_INTERRUPTED):
            show_summary(summary, as_json=json)
            raise typer.Exit(summary.exit_code)
        caught_up = summary.log_end is not None  # stopped early: the source knows changes that nobody has asked for yet
        report = verify_sinks(demonstration.config, with_source=caught_up)
        sample = demonstration.sample()
    if json:
        print_json({"event": "demo", "summary": asdict(summary), "verify": report.to_json()})
        raise typer.Exit(exit_code(report))
    size, took = human_bytes(summary.bytes), human_seconds(summary.seconds)
    say(
        "  [green]✓[/] {} rows in {} files, {}, {} with Spark's start"
        if summary.drained
        else "  [yellow]![/] {} rows in {} files, {}, {} with Spark's start",
        *(f"{summary.rows:,}", summary.files, size, took),
    )
    show_left(summary)
    show_report(report)
    if sample is not None:
        _show(sample)
    say('Next: spark.read.load("{}/lake", "penstock", table="shop.orders", view="current").show()', directory)
    say("      penstock init --source mariadb://user@host    writes penstock.yaml for your own server")
    raise typer.Exit(exit_code(report))


def _show(sample: pa.Table) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for name in sample.column_names:
        table.add_column(Text(shown(name)))
    for row in sample.to_pylist():
        add_row(table, *(_text(value) for value in row.values()))
    say_table(table)


def _text(value: object) -> str:
    """A value for a narrow column."""
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return "" if value is None else str(value)
