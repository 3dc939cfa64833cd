"""`penstock pause SINK`; `penstock resume SINK` (resume.py) ends it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import human_time, print_json, translate_errors
from penstock.cli.screen import say
from penstock.operations.config.loading import load_places
from penstock.operations.pause import Pause, set_paused
from penstock.schema.quoting import shell_word


def pause(
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The sink, as penstock.yaml names it.")],
    table: Annotated[
        str | None,
        typer.Option("--table", metavar="SCHEMA.TABLE", help="One table alone, as it is named at the sink."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Pause one sink of a running flow, or one table of it; the others go on. `penstock resume SINK` lets it go on.

    What is on its way is still written, then nothing more; of a table, only the file that is being written. It keeps its
    place, over restarts too, and so the log keeps everything from there on: `limits.log_disk` bounds it.
    """
    with translate_errors(as_json=json):
        done = set_paused(load_places(config), sink, paused=True, table=table)
    show_pause(done, as_json=json)


def show_pause(done: Pause, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
        return
    what = f"{done.table} of {done.sink}" if done.table else done.sink
    if done.paused:
        since = f"since {human_time(done.since_ms or 0)} (UTC)"
        say("[green]✓[/] {} is paused {}{}", what, since, "" if done.changed else ", as before")
        say("  → penstock resume {}{}", done.sink, f" --table {shell_word(done.table)}" if done.table else "")
    elif done.table and done.changed:
        say("[green]✓[/] {} goes on: what was held back is read again beside the others", what)
    else:
        again = ": what stopped at it is tried again" if done.again else " was not paused"
        say("[green]✓[/] {}{}", what, " goes on" if done.changed else again)
