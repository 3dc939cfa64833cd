"""`penstock resume`: a table that a statement parked goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import counted, print_json, shortened, translate_errors
from penstock.cli.screen import say
from penstock.operations.config.loading import load

if TYPE_CHECKING:
    from penstock.operations.resume.resume import Resumed


def resume(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The parked table, as `penstock status` names it.")],
    schema: Annotated[
        Path | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="A CREATE TABLE: the table as it was right after the statement that parked it. Without it the server is "
            "asked what the table is now.",
        ),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Let a parked table go on: its rows that were held back are delivered, in order, each once.

    The rows are read with the definition first; one that does not fit them is refused, and nothing is changed. Statements that came after the one that parked the table are applied to the definition. Works while the flow runs, and while it is stopped.
    """
    from penstock.operations.resume.resume import resume_table

    with translate_errors(as_json=json):
        done = resume_table(load(config), table, schema)
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
        say("    → penstock resume {}", plan.table.name)
