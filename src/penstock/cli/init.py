"""`penstock init`: a first penstock.yaml."""

from __future__ import annotations

import shlex
from collections import defaultdict
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import print_json, translate_errors
from penstock.cli.screen import say
from penstock.errors import BadInput
from penstock.operations.config import template
from penstock.operations.config.loading import parse

_EVERY_VARIABLE: defaultdict[str, str] = defaultdict(
    lambda: "set"
)  # the file is for another day, and perhaps for another machine


def init(
    source: Annotated[
        str,
        typer.Option(
            help="demo, a directory of binlog files, mariadb://user@host[:port], or mysql://user@host[:port]."
        ),
    ] = "demo",
    sink: Annotated[str | None, typer.Option(help="Where the files go; lake beside the file without it.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a penstock.yaml to start from. Relative paths in it are taken from its own directory."""
    with translate_errors(as_json=json):
        text = template.render(source, sink, config.parent)
        parse(text, config, _EVERY_VARIABLE)  # what `check` would refuse is not written
        try:
            with Path(config).open("w" if force else "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise BadInput(
                f"{config} is there already; nothing was changed", hint="use --force to replace it"
            ) from None
        except OSError as error:
            raise BadInput(f"{config} cannot be written: {error.strerror}", hint="make its directory first") from None
    if json:
        print_json({"written": str(config)})
    else:
        name = shlex.quote(str(config))
        say("[green]✓[/] wrote {}", config)
        say("  Next: penstock check -c {}   then   penstock run -c {}", name, name)
