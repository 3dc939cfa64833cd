"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.", envvar="PENSTOCK_CONFIG")]
DEFAULT_CONFIG = Path("penstock.yaml")
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]
LogPathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="The log's directory, or a state directory that holds log/.")
]
