"""`penstock status`: source, log, sinks, on one screen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from penstock.cli.delivery.table import print_metrics, show_table
from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import (
    counted,
    end_quietly,
    human_bytes,
    human_seconds,
    human_time,
    load_words,
    print_json,
    shortened,
)
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.operations.config.loading import load_places
from penstock.operations.status import StatusReport, read_status
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED
from penstock.supervisor.status import ChangefeedStatus, ParkedTable, RunStatus, XaStatus

_POLL_SECONDS = 2.0
_PARKED_SHOWN_MAX = 10  # on one screen


def status(
    config: ConfigOption = DEFAULT_CONFIG,
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="SCHEMA.TABLE",
            help="Show one table instead, in each sink: what it has buffered, why and when its last file was written, and how "
            "often for which reason in the last ten minutes. Exit code 1 if this run has seen nothing of it.",
        ),
    ] = None,
    metrics: Annotated[
        bool,
        typer.Option("--metrics", help="Print the metrics of the sinks instead, as text for Prometheus."),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how the flow is doing. Exit code 0 healthy, 1 degraded, 5 stopped."""
    with end_quietly(as_json=json):
        loaded = load_places(config)
        while table is not None or metrics:
            code = (
                print_metrics(loaded.state_dir) if metrics else show_table(loaded.state_dir, table or "", as_json=json)
            )
            if not watch:
                raise typer.Exit(code)
            time.sleep(_POLL_SECONDS)
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
        if report.position is not None:
            say("  captured through {}", _place(report.position))
        _show_xa(report.xa)
        _show_parked(report.parked, len(report.parked))
        say("exit {} (stopped)   penstock run starts it", EXIT_STOPPED)
        return
    source = run.source
    place = " ".join(f"{k} {v}" for k, v in (source.position or {}).items() if k in ("file", "pos", "gtid") and v)
    positions = source.positions
    lag = "" if source.lag_seconds is None else f"  lag {human_seconds(source.lag_seconds)}"
    heard = (
        "" if source.heard_ms is None else f"  last event {human_seconds((run.now_ms - source.heard_ms) / 1000)} ago"
    )
    say("[bold]SOURCE[/]  {}  {}{}{}", source.type, source.state, lag, heard)
    if positions is not None:
        _show_positions(positions)
    elif place:
        say("        {}", place)
    if source.load is not None and source.load.done < source.load.tables:
        say("[bold]LOAD[/]    {}", load_words(source.load))
        for one in source.load.loading:
            say("        {}: {} of about {} rows", one.table, f"{one.rows:,}", f"{max(one.rows, one.estimate):,}")
    log = run.log
    size = human_bytes(log.bytes) + (f" of {human_bytes(log.bytes_max)}" if log.bytes_max is not None else "")
    say(
        "[bold]LOG[/]     {}  end {}{}", size, log.end or "empty", f"  held by {log.pinned_by}" if log.pinned_by else ""
    )
    table = table_of("SINK", "STATE", "LAG", "ROWS", "FILES", "TABLES", "LAST WRITE")
    for feed in run.changefeeds:
        add_row(table, *_row(feed, run))
    say_table(table)
    for feed in run.changefeeds:
        for note in (feed.note, feed.advice):
            if note:
                say("[yellow]![/] {}: {}", feed.name, note)
    if source.problem:
        say("[yellow]![/] source: {}", source.problem)
    for child in run.children:
        if child.restarts or child.state == "failed":
            say("! {}: {}, started again {} times {}", child.name, child.state, child.restarts, child.note)
    _show_xa(source.xa)
    _show_parked(run.parked, run.parked_count)
    words = {EXIT_OK: "healthy", EXIT_DIFFERENT: "degraded", EXIT_STOPPED: "stopped"}
    meanings = ", ".join(f"{code} {word}" for code, word in words.items())
    say("exit {} ({})   {}   --json --watch", report.exit_code, words[report.exit_code], meanings)


def _show_positions(positions: dict[str, Any]) -> None:
    """Where capture reads, and from where it would read again (docs/cli.md, *Positions*)."""
    purposes = {positions["reconnect"]: "a reconnect", positions["restart"]: "a restart"}
    for name in ("read", "snapshot", "pending_snapshot"):
        purpose = f"  ({purposes[name]})" if name in purposes else ""
        say("        {} {}{}", f"{name.replace('_', ' '):<17}", _place(positions[name]), purpose)
    count = positions["unfinished_count"]
    if not count:
        say("        {} {}", f"{'unfinished':<17}", "no transaction")
        return
    oldest = positions["unfinished"][0]
    words = f"{counted(count, 'transaction')}, the oldest {oldest['state']}, from {_place(oldest['restart'])}"
    say("        {} {}", f"{'unfinished':<17}", words)


def _place(position: dict[str, Any]) -> str:
    where = f"{position['file']}:{position['pos']}" if position["file"] else ""
    return " ".join(part for part in (where, f"gtid {position['gtid']}" if position["gtid"] else "") if part)


def _show_parked(tables: Sequence[ParkedTable], count: int) -> None:
    for one in tables[:_PARKED_SHOWN_MAX]:
        statement = f" by: {shortened(one.statement)}" if one.statement else ""
        say("[yellow]![/] {} is parked since {}{}", one.table, human_time(one.since_ms), statement)
        say("    {}", one.reason)
        after = f", and {counted(one.statements_after, 'statement')} after it" if one.statements_after else ""
        rest = "the rows that a statement changed are not in it" if one.rows_missing else "nothing is lost"
        say("    its rows from there on{} are held back in the log; {}", after, rest)
        say("    → {}", one.command)
    if count > _PARKED_SHOWN_MAX:
        say("[yellow]![/] and {} more that are parked (--json has them)", count - _PARKED_SHOWN_MAX)


def _show_xa(xa: XaStatus) -> None:
    if xa.held:
        oldest = xa.held[0]
        place = f"prepared since {human_time(oldest.since_ms)} at {oldest.file}:{oldest.pos}"
        say("  {} without an outcome; the oldest: {}, {}", counted(xa.held_count, "XA transaction"), oldest.xid, place)
        if oldest.pins_after is not None:
            say("    the log is kept from {} on until the server has XA COMMIT or XA ROLLBACK of it", oldest.pins_after)
    for missed in xa.missed[:_PARKED_SHOWN_MAX]:
        say("[yellow]![/] rows of the XA transaction {} are not in the log", missed.xid)
        say("    it was prepared before the log's start, and committed right before {}", missed.committed_before)
    if xa.missed_count > _PARKED_SHOWN_MAX:
        say("[yellow]![/] and {} more that are not in the log", xa.missed_count - _PARKED_SHOWN_MAX)


def _row(feed: ChangefeedStatus, run: RunStatus) -> tuple[str, ...]:
    written = (
        "never" if feed.last_write_ms is None else f"{human_seconds((run.now_ms - feed.last_write_ms) / 1000)} ago"
    )
    lag = human_seconds(feed.lag_seconds)
    return (feed.name, feed.state, lag, f"{feed.rows:,}", str(feed.files), str(feed.tables), written)
