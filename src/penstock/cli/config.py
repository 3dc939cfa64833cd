"""`penstock config schema`: the configuration for editors and other programs."""

from __future__ import annotations

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_json
from penstock.operations.config.json_schema import config_schema

app = typer.Typer(help="The configuration for programs.", no_args_is_help=True)


@app.command("schema")
def schema(json: JsonOption = False) -> None:
    """Print the JSON Schema of penstock.yaml, for editors that complete and check while one writes.

    In VS Code or an editor with the YAML language server, as the first line of the file:

        # yaml-language-server: $schema=./penstock.schema.json
    """
    print_json(config_schema())
