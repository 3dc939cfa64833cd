"""`penstock status`: source, log, sinks, on one screen."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import console, human_bytes, human_seconds, print_json, translate_errors
from penstock.operations.config.loading import load
from penstock.operations.status import StatusReport, read_status
from penstock.supervisor.status import ChangefeedStatus, RunStatus

_POLL_SECONDS = 2.0


def status(
    config: ConfigOption = DEFAULT_CONFIG,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how the flow is doing. Exit code 0 healthy, 1 degraded, 2 stopped."""
    with translate_errors(as_json=json):
        loaded = load(config)
        while True:
            report = read_status(loaded)
            if json:
                print_json(report.model_dump(mode="json"))
            else:
                _show(report)
            if not watch:
                raise typer.Exit(report.exit_code)
            time.sleep(_POLL_SECONDS)


def _show(report: StatusReport) -> None:
    run = report.run
    if run is None:
        console.print(f"[bold]STOPPED[/]  {report.note}")
        for stopped in report.stopped:
            console.print(f"  {stopped.name}: delivered through {stopped.mark_delete or 'nothing yet'}")
        console.print("exit 2 (stopped)   penstock run starts it")
        return
    source = run.source
    place = " ".join(f"{k} {v}" for k, v in (source.position or {}).items() if k in ("file", "pos", "gtid") and v)
    lag = "" if source.lag_seconds is None else f"  lag {human_seconds(source.lag_seconds)}"
    console.print(f"[bold]SOURCE[/]  {source.type}  {source.state}  {place}{lag}")
    console.print(f"[bold]LOG[/]     {human_bytes(run.log.bytes)}  end {run.log.end or 'empty'}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("SINK", "STATE", "LAG", "ROWS", "FILES", "TABLES", "LAST WRITE", "NOTE"):
        table.add_column(name, justify="right" if name in ("ROWS", "FILES", "TABLES") else "left")
    for feed in run.changefeeds:
        table.add_row(*_row(feed, run))
    console.print(table)
    for child in run.children:
        if child.restarts or child.state == "failed":
            console.print(f"! {child.name}: {child.state}, started again {child.restarts} times {child.note}")
    word = {0: "healthy", 1: "degraded", 2: "stopped"}[report.exit_code]
    console.print(f"exit {report.exit_code} ({word})   0 healthy, 1 degraded, 2 stopped   --json --watch")


def _row(feed: ChangefeedStatus, run: RunStatus) -> tuple[str, ...]:
    written = (
        "never" if feed.last_write_ms is None else f"{human_seconds((run.now_ms - feed.last_write_ms) / 1000)} ago"
    )
    lag = human_seconds(feed.lag_seconds)
    return (feed.name, feed.state, lag, f"{feed.rows:,}", str(feed.files), str(feed.tables), written, feed.note)
