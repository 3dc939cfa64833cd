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
    headroom_words,
    human_bytes,
    human_rate,
    human_seconds,
    human_time,
    load_words,
    print_json,
    shortened,
)
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.errors import BadInput
from penstock.operations.config.loading import load_places
from penstock.operations.forget import LeftSink
from penstock.operations.status import StatusReport, read_status
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED
from penstock.supervisor.status import ChangefeedStatus, HeadroomStatus, ParkedTable, RunStatus, XaStatus

_POLL_SECONDS = 2.0
_NOWHERE = ("0:-1", "1:-1")  # of a cursor that has passed nothing: of an empty log, and of one with a first ledger
_COLUMNS = 80  # of a terminal
_SOURCE_COLUMNS = _COLUMNS - 12  # for the words of the first line
_PARKED_SHOWN_MAX = 10  # on one screen


def status(
    *,
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
    sink: Annotated[
        str | None,
        typer.Option(
            "--sink",
            metavar="NAME",
            help="Show one sink, beside what all of them share. The exit code is without the others.",
        ),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds until Ctrl-C.")] = False,
    json: JsonOption = False,
) -> None:
    """Show how the flow is doing. Exit code 0 healthy, 1 degraded, 5 stopped."""
    with end_quietly(as_json=json):
        loaded = load_places(config)
        if sink is not None and (metrics or table is not None):
            raise BadInput("--sink goes neither with --table nor with --metrics", hint="these show every sink")
        while table is not None or metrics:
            code = (
                print_metrics(loaded.state_dir) if metrics else show_table(loaded.state_dir, table or "", as_json=json)
            )
            if not watch:
                raise typer.Exit(code)
            time.sleep(_POLL_SECONDS)
        while True:
            report = read_status(loaded, sink)
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
            say("  {}: delivered through {}", stopped.name, _through(stopped.mark_delete))
        if report.position is not None:
            _say_place("  captured through ", report.position)
        _show_xa(report.xa)
        _show_parked(report.parked, len(report.parked))
        _show_left(report.left)
        say("exit {} (stopped)   penstock run starts it", EXIT_STOPPED)
        return
    source = run.source
    positions = source.positions
    lag = "" if source.lag_seconds is None else f"  lag {human_seconds(source.lag_seconds)}"
    heard = (
        "" if source.heard_ms is None else f"  last event {human_seconds((run.now_ms - source.heard_ms) / 1000)} ago"
    )
    name = f"{source.place} ({source.server or source.type})" if source.place else source.type
    state = "degraded" if source.problem else source.state  # capture may well run while its source is down
    if len(name) + len(state) + len(lag) + len(heard) > _SOURCE_COLUMNS:
        say("[bold]SOURCE[/]  {}", name)
        say("        {}{}{}", state, lag, heard)
    else:
        say("[bold]SOURCE[/]  {}  {}{}{}", name, state, lag, heard)
    if left := headroom_words(source.headroom):
        say("        binlog headroom {}", left)
    if positions is not None:
        _show_positions(positions)
    elif source.position:
        _say_place("        ", source.position)
    if source.load is not None and source.load.done < source.load.tables:
        say("[bold]LOAD[/]    {}", load_words(source.load))
        for one in source.load.loading:
            about = f"{one.rows:,} of about {max(one.rows, one.estimate):,} rows"
            where = f" where {shortened(one.where, 60)}" if one.where else ""
            say("        {}: {}{}", one.table + where, about, f"; {one.note}" if one.note else "")
    for one in source.load.ended if source.load is not None else ():
        say("[yellow]![/] the load of {} ended early, after {}: {}", one.table, counted(one.rows, "row"), one.note)
    log = run.log
    size = human_bytes(log.bytes) + (f" of {human_bytes(log.bytes_max)}" if log.bytes_max is not None else "")
    pinned = f"  pinned by {log.pinned_by}" if log.pinned_by else ""
    full = f" (full in {human_seconds(log.full_seconds)} at this rate)" if log.full_seconds is not None else ""
    say("[bold]LOG[/]     {}{}{}", size, pinned, full)
    spooled = sum(feed.spool_bytes for feed in run.changefeeds)
    say("        end {}{}", log.end or "empty", f"  spool {human_bytes(spooled)}" if spooled else "")
    table = table_of("SINK", "STATE", "LAG", "ROWS", "ROWS/S", "TABLES", "LAST WRITE")
    for feed in run.changefeeds:
        add_row(table, *_row(feed, run))
    say_table(table)
    for feed in run.changefeeds:
        for note in (feed.note, feed.advice):
            if note:
                say("[yellow]![/] {}: {}", feed.name, note)
        _show_paused_tables(feed)
    if source.problem:
        say("[yellow]![/] source: {}", source.problem)
    _show_low_headroom(source.headroom)
    for child in run.children:
        if child.restarts or child.state == "failed":
            say("! {}: {}, started again {} times {}", child.name, child.state, child.restarts, child.note)
    _show_xa(source.xa)
    _show_parked(run.parked, run.parked_count)
    _show_left(report.left)
    words = {EXIT_OK: "healthy", EXIT_DIFFERENT: "degraded", EXIT_STOPPED: "stopped"}
    meanings = ", ".join(f"{code} {word}" for code, word in words.items())
    say("exit {} ({})  {}  --json --watch --sink NAME", report.exit_code, words[report.exit_code], meanings)


def _show_paused_tables(feed: ChangefeedStatus) -> None:
    for one in feed.paused_tables[:_PARKED_SHOWN_MAX]:
        held = f", {counted(one.held_rows, 'change')} held back in the log" if one.held_rows is not None else ""
        say("[yellow]![/] {}: {} is paused since {}{}", feed.name, one.table, human_time(one.since_ms), held)
        say("    → {}", one.command)
    if feed.paused_tables_count > _PARKED_SHOWN_MAX:
        more = feed.paused_tables_count - _PARKED_SHOWN_MAX
        say("[yellow]![/] {}: and {} more that are paused (--json has them)", feed.name, more)
    if feed.replaying:
        names = ", ".join(feed.replaying[:_PARKED_SHOWN_MAX])
        say("  {}: {} read again from the log, beside the others", feed.name, names)


def _show_low_headroom(headroom: HeadroomStatus | None) -> None:
    if headroom is None or not headroom.low:
        return
    if headroom.seconds:
        say(
            "[yellow]![/] the server purges {} in about {}: what is not in the log by then is lost to it",
            headroom.file,
            human_seconds(headroom.seconds),
        )
        say("    → let capture catch up; or SET GLOBAL binlog_expire_logs_seconds = …")
    else:
        say("[yellow]![/] {} is gone from the server (oldest: {})", headroom.file, headroom.oldest)
        say("    a restart could not go on; keep this run going, and see docs/source.md")


def _show_positions(positions: dict[str, Any]) -> None:
    """Where capture reads, and from where it would read again (docs/cli.md, *Positions*)."""
    purposes = {positions["reconnect"]: "a reconnect", positions["restart"]: "a restart"}
    for name in ("read", "snapshot", "pending_snapshot"):
        purpose = f"  ({purposes[name]})" if name in purposes else ""
        _say_place(f"        {name.replace('_', ' '):<17} ", positions[name], purpose)
    count = positions["unfinished_count"]
    if not count:
        say("        {} {}", f"{'unfinished':<17}", "no transaction")
        return
    oldest = positions["unfinished"][0]
    words = f"{counted(count, 'transaction')}, the oldest {oldest['state']}, from {_place(oldest['restart'])}"
    say("        {} {}", f"{'unfinished':<17}", words)


def _through(mark_delete: str | None) -> str:
    return "nothing yet" if mark_delete is None or mark_delete in _NOWHERE else mark_delete


def _say_place(label: str, position: dict[str, Any], purpose: str = "") -> None:
    """On one line where it fits; else with a line for each server of its GTIDs, which are long on MySQL."""
    line = f"{label}{_place(position)}{purpose}"
    if len(line) <= _COLUMNS or not position.get("gtid"):
        say("{}", line)
        return
    say("{}", f"{label}{_place({**position, 'gtid': ''})}{purpose}".rstrip())
    for number, server in enumerate(position["gtid"].replace(",", ", ").split()):
        say("{}", f"{' ' * len(label)}{'     ' if number else 'gtid '}{server}")


def _place(position: dict[str, Any]) -> str:
    """Not every source has all of them."""
    where = f"{position['file']}:{position.get('pos', 0)}" if position.get("file") else ""
    return " ".join(part for part in (where, f"gtid {position['gtid']}" if position.get("gtid") else "") if part)


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


def _show_left(left: Sequence[LeftSink]) -> None:
    for one in left:
        what = counted(one.entries, "entry")
        say(
            "[yellow]![/] {} is not in the configuration, and holds the log: {} after {}",
            one.name,
            what,
            one.mark_delete or "its end",
        )
        say("    put it back, or → penstock forget {}", one.name)


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
    rate = "" if feed.rows_per_second is None else human_rate(feed.rows_per_second)
    return (feed.name, feed.state, lag, f"{feed.rows:,}", rate, str(feed.tables), written)
