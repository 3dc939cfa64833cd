"""`penstock backfill`: rows of tables are loaded again, beside the stream of a running flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import counted, load_words, print_json, translate_errors
from penstock.cli.screen import say, tell
from penstock.errors import BadInput
from penstock.operations.config.loading import load_places
from penstock.process import EXIT_DIFFERENT

if TYPE_CHECKING:
    from penstock.operations.backfill import BegunBackfill


def backfill(  # noqa: PLR0917
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCHEMA.TABLE…", help="The tables, with * and ?: shop.orders, 'shop.*'."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every table that the flow follows.")] = False,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help="Only rows that meet it where they are read: SQL, as after WHERE; times in UTC."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Show how far it is, and return when it is done.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Load the rows of tables again, beside the stream of a running flow: they come to every sink as inserts.

    Lock-free and in chunks, like an initial load; nothing is written at the source. It is durable when this command returns, and goes on by itself over kills and restarts, also if this command is stopped; `penstock status` shows how far it is. Apply changes by key: a row that is there already comes again, never older. Rows that the source does not have any more are not taken away.
    """
    from penstock.operations.backfill import begin_backfill, wait_for_load

    with translate_errors(as_json=json):
        if bool(tables) == every:
            raise BadInput(
                "name the tables, or give --all" if not every else "--all is every table: name none beside it",
                hint="for example: penstock backfill shop.orders",
            )
        if where is not None and not where.strip():  # a variable that is not set: it must not mean every row
            raise BadInput("--where is empty", hint="leave it out to load every row")
        places = load_places(config)
        begun = begin_backfill(places, ["*.*"] if every else list(tables or ()), where=where or "")
        if not json:
            _show(begun)
        if not wait:
            if json:
                print_json(begun.model_dump(mode="json"))
            return
        done = wait_for_load(places, begun.begun_ms, lambda load: tell("  loading   {}", load_words(load)))
    if json:
        print_json({**begun.model_dump(mode="json"), "load": done.model_dump(mode="json")})
    else:
        say("[green]✓[/] {} of {} in the log", counted(done.rows, "row"), counted(done.tables, "table"))
        for one in done.ended:
            say("[yellow]![/] the load of {} ended early, after {}: {}", one.table, counted(one.rows, "row"), one.note)
    if done.ended:
        raise typer.Exit(EXIT_DIFFERENT)


def _show(begun: BegunBackfill) -> None:
    for one in begun.tables:
        say("[green]✓[/] {} is being loaded: about {}", one.table, counted(one.estimate, "row"))
    for refused in begun.refused:
        say("[yellow]![/] {} is not: {}", refused.table, refused.reason)
    say("  It goes on by itself; penstock status shows how far it is.")
