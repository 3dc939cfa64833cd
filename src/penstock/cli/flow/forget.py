"""`penstock forget SINK`: what a sink that was taken out of the configuration still holds is given up."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import counted, print_json, translate_errors
from penstock.cli.screen import say
from penstock.operations.config.loading import load_places
from penstock.process import EXIT_DIFFERENT


def forget(
    sink: Annotated[str, typer.Argument(metavar="SINK", help="The sink, as penstock.yaml named it.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, only say what would be given up.")] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    json: JsonOption = False,
) -> None:
    """Give up the place in the log of a sink that was taken out of the configuration; its files stay.

    Until then the log is kept from there on: put back, the sink goes on where it was. Afterwards it would begin anew, as a
    new one. Works while the flow runs, too. Without --yes nothing is changed, with exit code 1.
    """
    from penstock.operations.forget import forget as ask

    with translate_errors(as_json=json):
        done = ask(load_places(config), sink, yes=yes)
    if json:
        print_json(done.model_dump(mode="json"))
    else:
        left = f"{counted(done.sink.entries, 'entry')} of the log after {done.sink.mark_delete or 'its end'}"
        if done.done:
            say("[green]✓[/] {} is forgotten; its files stay, and {} were not delivered to it", sink, left)
        else:
            say("[yellow]![/] {} would not get {}; its files stay", sink, left)
            say("  nothing was changed → penstock forget {} --yes", sink)
    if not done.done:
        raise typer.Exit(EXIT_DIFFERENT)
