"""The command line as a whole: everyday commands first, the commands that look inside in a panel of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import binlog, check, demo, init, run, status, verify
from penstock.cli.log import commands as log
from penstock.cli.state import commands as state

app = typer.Typer(
    name="penstock",
    help="Copies every change of a MySQL or MariaDB server, in order and without loss, into storage, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
INSIDES = "The insides"


def _version(value: bool) -> None:
    if value:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("init")(init.init)
app.command("check")(check.check)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("verify")(verify.verify)
app.command("demo")(demo.demo)
app.add_typer(binlog.app, name="binlog", rich_help_panel=INSIDES)
app.add_typer(log.app, name="log", rich_help_panel=INSIDES)
app.add_typer(state.app, name="state", rich_help_panel=INSIDES)


def main() -> None:
    """The entry point of the `penstock` script."""
    app()
