"""`penstock resume`: a table that a statement parked goes on, or a sink that was paused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.flow.pause import show_pause
from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import counted, print_json, shortened, translate_errors
from penstock.cli.screen import say
from penstock.errors import BadInput
from penstock.operations.config.loading import load, load_places
from penstock.operations.pause import set_paused
from penstock.schema.quoting import shell_word

if TYPE_CHECKING:
    from penstock.operations.resume.resume import Resumed


def resume(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SCHEMA.TABLE|SINK", help="The parked table, or the paused sink, as `penstock status` names it."
        ),
    ],
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="A CREATE TABLE: the table as it was right after the statement that parked it. Without it the server is "
            "asked what the table is now.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="SCHEMA.TABLE", help="With a SINK: the table of it that was paused."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Let a parked table, or a paused sink, go on: what was held back is delivered, in order, each row once.

    A name with a dot is a table that is parked, one without is a sink; with --table, one paused table of it goes on, and its rows are read again beside the others. Of a parked table the rows are read with the definition first; one that does not fit them is refused, and nothing is changed. Statements that came after the one that parked the table are applied to the definition. Works while the flow runs, and while it is stopped.
    """
    from penstock.operations.resume.resume import resume_table

    with translate_errors(as_json=json):
        if "." not in name:
            if schema is not None:
                raise BadInput(f"{name} is a sink, and --schema is for a table", hint="name it as SCHEMA.TABLE")
            show_pause(set_paused(load_places(config), name, paused=False, table=table), as_json=json)
            return
        if table is not None:
            raise BadInput(f"{name} is a table already", hint=f"penstock resume SINK --table {shell_word(table)}")
        done = resume_table(load(config), name, schema)
    if json:
        print_json(done.to_json())
    else:
        _show(done)


def _show(done: Resumed) -> None:
    plan = done.plan
    columns = counted(len(plan.table.columns), "column")
    say("[green]✓[/] {} is resumed with {} from {}", plan.table.name, columns, done.origin)
    for statement in plan.statements:
        say("  then: {}", shortened(statement))
    who = "the run delivers them now" if done.running else "the next `penstock run` delivers them"
    say("  {} held back so far: {}", counted(plan.rows, "change"), who)
    if plan.parked_again:
        say("[yellow]![/] it is parked again by a later statement: {}", shortened(plan.parked_again))
        say("    → penstock resume {}", shell_word(plan.table.name))
