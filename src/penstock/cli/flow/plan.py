"""`penstock plan`: what a run would do: tables, load, disk, files, and what changes for a flow that is there already."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import counted, human_bytes, human_seconds, print_json, translate_errors
from penstock.cli.screen import add_row, complain, say, say_table, table_of
from penstock.operations.config.loading import load

if TYPE_CHECKING:
    from penstock.operations.plan.model import Difference, Plan, PlannedLoad


def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    rate: Annotated[
        int | None,
        typer.Option("--rate", metavar="ROWS", min=1, help="Rows a second that a load is taken to read."),
    ] = None,
    tables: Annotated[bool, typer.Option("--tables", help="List every table, with its rows and its key.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what a run would do, before anything is started: tables, rows to load, time, disk, files.

    Against a flow that is there already, also what the configuration changes for it. Asks the server for its catalogue
    alone; changes nothing. A pattern that matches no table is an error. Exit code 0 if nothing stands against a start, 2 if the
    configuration does, 3 if the source does.
    """
    from penstock.operations.plan.plan import make_plan

    with translate_errors(as_json=json):
        made = make_plan(load(config), rate)
    if json:
        print_json({"exit_code": made.exit_code, **made.model_dump(mode="json")})
    else:
        _show(made, every_table=tables)
    raise typer.Exit(made.exit_code)


def _show(plan: Plan, *, every_table: bool) -> None:
    flow = {"new": "a new flow", "stopped": "a flow that is stopped", "running": "a flow that runs"}[plan.flow]
    say("[bold]SOURCE[/]  {}  (start: {}; {})", plan.source, plan.start, flow)
    if plan.globs:
        shown = table_of("GLOB", "TABLES", "ROWS", "SIZE", "OF")
        for one in plan.globs:
            rows = "" if one.rows is None else f"{one.rows:,}"
            size = "" if one.bytes is None else human_bytes(one.bytes)
            add_row(shown, one.glob, one.tables, rows, size, one.key)
        say_table(shown)
    if every_table and plan.tables:
        _show_tables(plan)
    if plan.load is not None:
        _show_load(plan.load)
    elif plan.flow == "new" and any(one.rows for one in plan.tables or ()):
        say("[bold]LOAD[/]    nothing: source.start: snapshot loads what is there already")
    _show_disk(plan)
    for sink in plan.sinks:
        many = f"{counted(sink.tables, 'table')}" if plan.tables is not None else "tables"
        say("[bold]SINK[/]    {} ({}): {}, such as", sink.name, sink.format, many)
        say("        {}", _from_here(sink.example))
    _show_differences(plan)
    for note in plan.notes:
        say("[yellow]![/] {}", note)
    for problem in plan.problems:
        complain(problem.message, problem.hint)
    if not plan.problems:
        say(
            "[green]✓[/] nothing stands against it → {}",
            "penstock run" if plan.flow != "running" else "it runs already",
        )


def _show_tables(plan: Plan) -> None:
    shown = table_of("TABLE", "ROWS", "SIZE", "KEY", "LOAD")
    for one in plan.tables or ():
        rows = "" if one.rows is None else f"{one.rows:,}"
        size = "" if one.bytes is None else human_bytes(one.bytes)
        key = {True: "primary", False: "none", None: ""}[one.primary_key]
        add_row(shown, one.table, rows, size, key, one.refused or ("yes" if one.load else ""))
    say_table(shown)


def _show_load(load: PlannedLoad) -> None:
    what = f"{counted(load.tables, 'table')}, about {counted(load.rows, 'row')}, {human_bytes(load.bytes)}"
    say("[bold]LOAD[/]    {}", what)
    say("        about {} at {} rows/s ({})", human_seconds(load.seconds), f"{load.rows_per_second:,}", load.stated)


def _show_disk(plan: Plan) -> None:
    disk = plan.disk
    log = (
        f"{human_bytes(disk.log_bytes)} for the load, until every sink has it"
        if disk.log_bytes
        else "what the sinks lack"
    )
    bound = f", at most {human_bytes(disk.log_bytes_max)}" if disk.log_bytes_max is not None else ""
    say("[bold]DISK[/]    log: {}{}", log, bound)
    say("        spool: at most {}; free: {}", human_bytes(disk.spool_bytes), human_bytes(disk.free_bytes))
    needed = min(disk.log_bytes, disk.log_bytes_max) if disk.log_bytes_max is not None else disk.log_bytes
    if needed > disk.free_bytes:
        say("[yellow]![/] the log may need more than there is: it pauses then, until the sinks have caught up")


def _from_here(path: str) -> str:
    """A path on this machine as it is seen from the working directory, where it is below it."""
    here = f"{Path.cwd()}/"
    return f"./{path.removeprefix(here)}" if path.startswith(here) else path


def _show_differences(plan: Plan) -> None:
    if plan.differences is None:
        return
    say("[bold]CHANGES[/] {}", "against the last start" if plan.differences else "none against the last start")
    for one in plan.differences:
        _show_difference(one)
    if plan.differences and plan.flow == "running":
        say("        penstock reload lets sinks come and go; the rest waits for the next start")


def _show_difference(one: Difference) -> None:
    if one.sign == "+":
        say("  [green]+[/] {} ({})", one.what, one.effect)
    elif one.sign == "-":
        say("  [red]-[/] {} ({})", one.what, one.effect)
    else:
        say("  [yellow]~[/] {} ({})", one.what, one.effect)
