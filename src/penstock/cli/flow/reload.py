"""`penstock reload`: a running flow reads its configuration again."""

from __future__ import annotations

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import print_json, translate_errors
from penstock.cli.screen import say
from penstock.operations.config.loading import load_places
from penstock.process import EXIT_DIFFERENT


def reload(config: ConfigOption = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Let a running flow read its configuration again: sinks that are new begin, sinks that are gone end, the others go on.

    The run reads the file that it was started with, and takes variables from its own environment. What else changed
    counts from the next `penstock run` on and is named, with exit code 1. A sink that is taken out keeps its place in the
    log: put back, it goes on there. A file with a mistake changes nothing.
    """
    from penstock.operations.reload import reload as ask

    with translate_errors(as_json=json):
        done = ask(load_places(config))
    if json:
        print_json(done.model_dump(mode="json"))
    else:
        for name in done.added:
            say("[green]✓[/] {} is added; penstock status shows how far it is", name)
        for name in done.removed:
            say("[green]✓[/] {} is removed; its place in the log is kept", name)
        if not done.added and not done.removed:
            say("[green]✓[/] the sinks are those of the configuration")
        for name in done.restart:
            say("[yellow]![/] {} has changed, and counts from the next penstock run on", name)
    if done.restart:
        raise typer.Exit(EXIT_DIFFERENT)
