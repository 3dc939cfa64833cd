"""`penstock lag`, `penstock errors` and `penstock dispatchers`: questions to a running flow, each with one answer."""

from __future__ import annotations

from typing import Annotated, NoReturn

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import (
    counted,
    headroom_words,
    human_bytes,
    human_seconds,
    human_time,
    print_json,
    translate_errors,
)
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.errors import BadInput
from penstock.operations.config.loading import load_places
from penstock.operations.config.model import Places
from penstock.operations.feeds import errors_of, read_dispatchers, read_run
from penstock.operations.status import check_sink
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED
from penstock.quantities import parse_seconds

SinkArgument = Annotated[str | None, typer.Argument(metavar="[SINK]", help="One sink; without it all of them.")]


def lag(
    sink: SinkArgument = None,
    most: Annotated[
        str | None, typer.Option("--max", metavar="TIME", help="End with 1 if a sink is further behind, such as 60s.")
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Show how far each sink is behind: the age of the oldest commit that is not there, 0 when there is none.

    Exit code 0, 1 above --max, 5 if the flow is stopped. A source that is degraded counts as above: what it holds back has
    no age here.
    """
    with translate_errors(as_json=json):
        limit = _limit(most)
        places = load_places(config)
        run = read_run(places, sink)
        if run is None:
            _say_stopped(places, as_json=json)
        lags = {feed.name: feed.lag_seconds for feed in run.changefeeds}
        late = [name for name, seconds in lags.items() if limit is not None and seconds > limit]
        unknown = run.source.problem if limit is not None else ""
        code = EXIT_DIFFERENT if late or unknown else EXIT_OK
    if json:
        headroom = run.source.headroom
        document = {"exit_code": code, "max_seconds": limit, "lag_seconds": lags, "late": late}
        document["binlog_headroom_seconds"] = headroom.seconds if headroom is not None else None
        print_json({**document, "source_problem": run.source.problem})
    else:
        for name, seconds in lags.items():
            say("{} {}{}", f"{name:<16}", human_seconds(seconds), f"  above {most}" if name in late else "")
        if words := headroom_words(run.source.headroom):
            say("{} {}", f"{'binlog headroom':<16}", words)
        if run.source.problem:
            say("[yellow]![/] source: {}", run.source.problem)
    raise typer.Exit(code)


def errors(sink: SinkArgument = None, config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Show everything that is wrong now, in full: the source, the processes, parked tables, tables that a sink refuses.

    Exit code 0 if nothing is, 1 if something is, 5 if the flow is stopped.
    """
    with translate_errors(as_json=json):
        places = load_places(config)
        run = read_run(places, sink)
        if run is None:
            _say_stopped(places, as_json=json)
        found = errors_of(run, read_dispatchers(places.state_dir, sink) or (), sink)
        code = EXIT_DIFFERENT if found else EXIT_OK
    if json:
        print_json({"exit_code": code, "errors": [one.model_dump(mode="json") for one in found]})
        raise typer.Exit(code)
    for one in found:
        attempt = f" (attempt {one.attempts})" if one.attempts else ""
        say("[yellow]![/] {}{}: {}", f"{one.sink}: " if one.sink else "", f"{one.where}{attempt}", one.message)
        if one.command:
            say("    → {}", one.command)
    if not found:
        say("[green]✓[/] nothing is wrong")
    raise typer.Exit(code)


def dispatchers(
    sink: SinkArgument = None,
    table: Annotated[str | None, typer.Option("--table", metavar="SCHEMA.TABLE", help="One table alone.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """List the tables on their way to each sink: state, rows and files of this run, and how far each has come.

    A table appears with its first row. `penstock status --table` looks at one more closely. Exit code 1 if there is none, 5
    if the flow is stopped.
    """
    with translate_errors(as_json=json):
        places = load_places(config)
        check_sink(places, sink)
        found = read_dispatchers(places.state_dir, sink, table)
        if found is None:
            _say_stopped(places, as_json=json)
        code = EXIT_OK if found else EXIT_DIFFERENT
    if json:
        print_json({"exit_code": code, "dispatchers": [one.model_dump(mode="json") for one in found]})
        raise typer.Exit(code)
    if not found:
        say("nothing came in this run yet")
        raise typer.Exit(code)
    shown = table_of("SINK", "TABLE", "STATE", "ROWS", "FILES", "BYTES", "LAST WRITE (UTC)")
    for one in found:
        written = human_time(one.last_write_ms or 0)
        add_row(shown, one.sink, one.table, one.state, f"{one.rows:,}", one.files, human_bytes(one.bytes), written)
    say_table(shown)
    say("{}", counted(len(found), "table"))
    for one in found:
        if one.replayed_to is not None:
            say(
                "  {} {} is read again from the log: at {}, the others at {}",
                one.sink,
                one.table,
                one.replayed_to,
                one.published_end,
            )
        elif one.held_rows:
            say("  {} {} has {} held back in the log", one.sink, one.table, counted(one.held_rows, "change"))
    raise typer.Exit(code)


def _limit(text: str | None) -> float | None:
    try:
        return None if text is None else parse_seconds(text)
    except ValueError as error:
        raise BadInput(f"--max: {error}", hint="write a time such as 60s or 5m") from None


def _say_stopped(places: Places, *, as_json: bool) -> NoReturn:
    if as_json:
        print_json({"exit_code": EXIT_STOPPED})
    else:
        say("[bold]STOPPED[/]  no penstock run owns {}", places.state_dir)
    raise typer.Exit(EXIT_STOPPED)
