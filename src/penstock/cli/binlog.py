"""`penstock binlog`: looks into binlog files, without a server and without a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import print_json, translate_errors

app = typer.Typer(help="Look into binlog files.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


@app.command("decode")
def decode(
    files: Annotated[list[Path], typer.Argument(help="Binlog files, in order.", exists=True, dir_okay=False)],
    format: Annotated[Literal["jsonl"], typer.Option(help="One JSON object a line, one line an event.")] = "jsonl",
    json: JsonOption = False,
) -> None:
    """Print every event of binlog files, with decoded rows, as JSON lines."""
    from penstock.binlog.dump import dump_events

    with translate_errors(as_json=json):
        for path in files:
            for event in dump_events(path.read_bytes()):
                print_json({"file": path.name, **event})
