"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.", envvar="PENSTOCK_CONFIG")]
DEFAULT_CONFIG = Path("penstock.yaml")
