"""`penstock status --table` and `penstock status --metrics`."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.cli.output import counted, human_bytes, human_seconds, human_time, print_json
from penstock.cli.screen import complain, say
from penstock.operations.delivery.table import TableState, read_metrics, read_table
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED


def show_table(state_dir: Path, name: str, *, as_json: bool) -> int:
    """Prints the state of one table in each sink; returns the exit code."""
    states = read_table(state_dir, name)
    code = EXIT_STOPPED if states is None else EXIT_OK if states else EXIT_DIFFERENT
    if as_json:
        print_json({"exit_code": code, "table": name, "sinks": [one.model_dump(mode="json") for one in states or ()]})
    elif states is None:
        say("[bold]STOPPED[/]  no delivery process answers in {}", state_dir)
    elif not states:
        say("{}: nothing of it came in this run (or no sink follows it)", name)
    for one in states or ():
        if not as_json:
            _show(one)
    return code


def _show(one: TableState) -> None:
    say("[bold]{}.{}[/]  sink {}  {}", one.schema_name, one.table, one.changefeed, one.state)
    age = f", its oldest row waits {human_seconds(one.batch_age_seconds)}" if one.batch_age_seconds is not None else ""
    held, grows = human_bytes(one.buffered_bytes), human_bytes(one.batch_bytes)
    say("  buffered    {} held, next file {} ({}){}", held, grows, counted(one.batch_rows, "row"), age)
    say(
        "  written at  {} or {} after its oldest row",
        human_bytes(one.file_size_target),
        human_seconds(one.flush_interval_seconds),
    )
    if one.last_flush_reason is None:
        say("  last file   none in this run")
    else:
        since = human_seconds(one.seconds_since_last_flush or 0.0)
        words = (human_time(one.last_flush_ms or 0), since, one.last_flush_reason, human_bytes(one.last_flush_bytes))
        say("  last file   {} ({} ago), reason {}, {}  {}", *words, one.last_path or "")
    counts = sorted(one.recent_flushes.items(), key=lambda pair: -pair[1])
    recent = ", ".join(f"{reason} {count:,}" for reason, count in counts) or "none"
    say("  flushes     {} in the last {}", recent, human_seconds(one.recent_seconds))
    if one.suppressed:
        say("[yellow]![/] the spool of {} is full: no new rows come until the sink has taken some", one.changefeed)
    if one.last_error:
        say("[yellow]![/] attempt {}: {}", one.attempts, one.last_error)
    say("  [dim]dispatcher {}  epoch {}  progress {}[/]", one.dispatcher, one.epoch, one.progress or "none")


def print_metrics(state_dir: Path) -> int:
    """Prints the metrics of the delivery process; returns the exit code."""
    text = read_metrics(state_dir)
    if text is None:
        complain("no delivery process answers", f"`penstock run` starts it; asked in {state_dir}")
        return EXIT_STOPPED
    sys.stdout.write(text)
    return EXIT_OK
