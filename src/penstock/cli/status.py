"""`penstock status`: source, log, sinks, on one screen."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import end_quietly, human_bytes, human_seconds, print_json
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.operations.config.loading import load_places
from penstock.operations.status import StatusReport, read_status
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED
from penstock.supervisor.status import ChangefeedStatus, RunStatus

_POLL_SECONDS = 2.0


def status(
    config: ConfigOption = DEFAULT_CONFIG,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how the flow is doing. Exit code 0 healthy, 1 degraded, 5 stopped."""
    with end_quietly(as_json=json):
        loaded = load_places(config)
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
        say("[bold]STOPPED[/]  {}", report.note)
        for stopped in report.stopped:
            say("  {}: delivered through {}", stopped.name, stopped.mark_delete or "nothing yet")
        say("exit {} (stopped)   penstock run starts it", EXIT_STOPPED)
        return
    source = run.source
    place = " ".join(f"{k} {v}" for k, v in (source.position or {}).items() if k in ("file", "pos", "gtid") and v)
    lag = "" if source.lag_seconds is None else f"  lag {human_seconds(source.lag_seconds)}"
    say("[bold]SOURCE[/]  {}  {}  {}{}", source.type, source.state, place, lag)
    say("[bold]LOG[/]     {}  end {}", human_bytes(run.log.bytes), run.log.end or "empty")
    table = table_of("SINK", "STATE", "LAG", "ROWS", "FILES", "TABLES", "LAST WRITE", "NOTE")
    for feed in run.changefeeds:
        add_row(table, *_row(feed, run))
    say_table(table)
    for child in run.children:
        if child.restarts or child.state == "failed":
            say("! {}: {}, started again {} times {}", child.name, child.state, child.restarts, child.note)
    words = {EXIT_OK: "healthy", EXIT_DIFFERENT: "degraded", EXIT_STOPPED: "stopped"}
    meanings = ", ".join(f"{code} {word}" for code, word in words.items())
    say("exit {} ({})   {}   --json --watch", report.exit_code, words[report.exit_code], meanings)


def _row(feed: ChangefeedStatus, run: RunStatus) -> tuple[str, ...]:
    written = (
        "never" if feed.last_write_ms is None else f"{human_seconds((run.now_ms - feed.last_write_ms) / 1000)} ago"
    )
    lag = human_seconds(feed.lag_seconds)
    return (feed.name, feed.state, lag, f"{feed.rows:,}", str(feed.files), str(feed.tables), written, feed.note)
