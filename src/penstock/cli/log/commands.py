"""The group `penstock log`: its help, and its commands in the order of the help."""

from __future__ import annotations

import typer

from penstock.cli.log.append import append, create
from penstock.cli.log.cursors import cursors
from penstock.cli.log.inspect import inspect
from penstock.cli.log.ls import ls
from penstock.cli.log.offload import offload
from penstock.cli.log.read import read, tail
from penstock.cli.log.trim import trim
from penstock.cli.log.verify import verify

app = typer.Typer(
    help="Look into a log and work on it: a directory of ledgers with named cursors, such as penstock-data/log.\n\n"
    "PATH is the log's directory, or a state directory that holds log/. Positions are LEDGER:ENTRY, such as 4:17. "
    "Everything but create, append, trim and offload only looks, and works while another process owns the log.",
    no_args_is_help=True,
)

for command in (create, append, read, tail, ls, inspect, verify, cursors, trim, offload):
    app.command(command.__name__)(command)
