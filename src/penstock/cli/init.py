"""`penstock init`: a first penstock.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_CONFIG, ConfigOption, JsonOption
from penstock.cli.output import console, print_json, translate_errors
from penstock.errors import BadInput
from penstock.operations.config import template


def init(
    source: Annotated[
        str, typer.Option(help="demo, a directory of binlog files, or mariadb://user@host[:port].")
    ] = "demo",
    sink: Annotated[str, typer.Option(help="Where the files go.")] = "./lake",
    config: ConfigOption = DEFAULT_CONFIG,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a penstock.yaml to start from."""
    with translate_errors(as_json=json):
        text = template.render(source, sink)
        if config.exists() and not force:
            raise BadInput(f"{config} is there already; nothing was changed", hint="use --force to replace it")
        Path(config).write_text(text, encoding="utf-8")
    if json:
        print_json({"written": str(config)})
    else:
        console.print(f"[green]✓[/] wrote {config}")
        console.print(f"  Next: penstock check -c {config}   then   penstock run -c {config}")
