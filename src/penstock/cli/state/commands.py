"""The group `penstock state`: its help, and its commands in the order of the help."""

from __future__ import annotations

import typer

from penstock.cli.state.checkpoint import checkpoint
from penstock.cli.state.ls import ls
from penstock.cli.state.pairs import dump, get
from penstock.cli.state.verify import verify

app = typer.Typer(
    help="Look into the state of a log: the key-value stores whose changes ride in its entries, such as a flow's source "
    "position and schema history.\n\n"
    "PATH is the log's directory, or a state directory that holds log/. A STORE is named OPERATOR/NAME, or NAME alone; `ls` "
    "lists them. A KEY is given as its store's codec wants it: a number, a text, a JSON list for a tuple "
    '(\'["shop", "orders", 0]\'), or 0x… for raw bytes. Everything but checkpoint only looks, and works while another '
    "process owns the log: it sees what is durable.",
    no_args_is_help=True,
)

for command in (ls, get, dump, checkpoint, verify):
    app.command(command.__name__)(command)
