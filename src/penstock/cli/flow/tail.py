"""`penstock tail`: the changes as they come, from the log."""

from __future__ import annotations

import json as json_lines
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import end_quietly, human_time, shortened
from penstock.cli.screen import end_without_reader, say, tell
from penstock.observe.shown import shown_json
from penstock.operations.config.loading import load

if TYPE_CHECKING:
    from penstock.operations.tail.changes import Image, TailedChange

_VALUE_CHARACTERS_MAX = 40


def tail(  # noqa: PLR0917
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCHEMA.TABLE…", help="The tables, with * and ?; all of the flow without them."),
    ] = None,
    sink: Annotated[
        str | None,
        typer.Option("--sink", metavar="NAME", help="As this sink sees them: its tables, its rules, its masks."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", metavar="PLACE", help="Where to begin: now, earliest, a position (4:17), or a time ago (10m)."
        ),
    ] = "now",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after so many changes.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for what comes until Ctrl-C, or end where the log ends.")
    ] = True,
    seconds: Annotated[float | None, typer.Option(min=0, help="Follow for so long.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Show the changes of tables as they come, in the order of the log, while the flow runs or not.

    Reads what capture has made durable, whether or not it is at a sink yet, and holds up nothing: the flow does not know of
    it. Rules for every sink always hold: a masked value is never shown. Of a table that is parked nothing is shown from
    there on.
    """
    from penstock.operations.tail.following import tail as follow_log

    with end_quietly(as_json=json):
        loaded = load(config, asks_source=False)
        left = limit
        found = follow_log(
            loaded,
            tables or (),
            sink=sink,
            start=start,
            follow=follow,
            seconds=seconds,
            note=lambda text: None if json else tell("[dim]{}; Ctrl-C ends[/]" if follow else "[dim]{}[/]", text),
        )
        with closing(found):
            for change in found:
                _print_json(change) if json else _print(change)
                left = None if left is None else left - 1
                if left == 0:
                    break


def _print_json(change: TailedChange) -> None:
    try:
        sys.stdout.write(shown_json(change.to_json()) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        end_without_reader()


def _print(change: TailedChange) -> None:
    when, name = human_time(change.milliseconds), f"{change.schema}.{change.table}"
    if change.op == "ddl":
        say("[dim]{}[/] [bold]![/] {}  {}", when, name, shortened(change.statement or change.kind))
    elif change.op == "parked":
        say("[dim]{}[/] [bold]![/] {}  is parked, nothing of it is shown: {}", when, name, shortened(change.reason))
    elif change.op == "insert":
        say("[dim]{}[/] [green]I[/] {}  {}", when, name, _words(change))
    elif change.op == "delete":
        say("[dim]{}[/] [red]D[/] {}  {}", when, name, _words(change))
    else:
        say("[dim]{}[/] [yellow]U[/] {}  {}", when, name, _words(change))


def _words(change: TailedChange) -> str:
    """Of an insert all columns, of an update the key and what changed, of a delete the key; of a table without one, all."""
    before, after = change.before or {}, change.after or {}
    if change.op == "insert":
        return _listed(after)
    row = {name: value for name, value in (before or after).items() if name in change.key or not change.key}
    if change.op == "delete":
        return _listed(row)
    changed = [
        f"{name}: {_value(before[name])} → {_value(after[name])}" if name in before else f"{name}={_value(after[name])}"
        for name in after
        if before.get(name) != after[name]
    ]
    return " ".join([_listed(row), *changed]) if changed else f"{_listed(row)} (nothing changed)"


def _listed(image: Image) -> str:
    return " ".join(f"{name}={_value(text)}" for name, text in image.items())


def _value(text: str) -> str:
    """The value for people: a plain text without its quotes, and not too long."""
    shown = text
    if text.startswith('"'):
        plain = json_lines.loads(text)
        shown = plain if plain and " " not in plain and plain.isprintable() and plain != "null" else text
    return shortened(shown, _VALUE_CHARACTERS_MAX)
