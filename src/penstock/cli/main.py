"""The command line as a whole: everyday commands first, the commands that look inside in a panel of their own."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli import binlog, check, config, demo, init, run, status, verify
from penstock.cli.delivery import spool
from penstock.cli.flow import backfill, feeds, forget, pause, plan, reload, resume, tail
from penstock.cli.help import let_help_flow
from penstock.cli.log import changing, listing, reading
from penstock.cli.log import verify as log_verify
from penstock.cli.screen import complain, say
from penstock.cli.state import checkpoints, looking
from penstock.files.private import no_core_dumps, private_umask
from penstock.observe.logging import LEVEL_VARIABLE, configure, redact
from penstock.observe.shown import shown_lines
from penstock.process import EXIT_CODES, EXIT_FAILED, EXIT_INTERRUPTED

_EXIT_CODES_HELP = "Exit codes: " + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "."


class _Commands(TyperGroup):
    """Ctrl-C has its own exit code wherever it comes; typer's is 1, which means "the answer is no" here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


app = typer.Typer(
    name="penstock",
    cls=_Commands,
    help="Copies every change of a MariaDB or MySQL server, in order and without loss, into files, on Spark.",
    no_args_is_help=True,
    epilog=_EXIT_CODES_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
log_app = typer.Typer(
    help="Look into a log and work on it: a directory of ledgers with named cursors, such as penstock-data/log.\n\n"
    "PATH is the log's directory, or a state directory that holds log/. Positions are LEDGER:ENTRY, such as 4:17. "
    "Everything but create, append, trim, offload and skip only looks, and works while another process owns the log.",
    no_args_is_help=True,
)
state_app = typer.Typer(
    help="Look into the state of a log: the key-value stores whose changes ride in its entries, such as a flow's source "
    "position and schema history.\n\n"
    "PATH is the log's directory, or a state directory that holds log/. A STORE is named OPERATOR/NAME, or NAME alone; `ls` "
    "lists them. A KEY is given as its store's codec wants it: a number, a text, a JSON list for a tuple "
    '(\'["shop", "orders", 0]\'), or 0x… for raw bytes. Everything but checkpoint only looks, and works while another '
    "process owns the log: it sees what is durable.",
    no_args_is_help=True,
)
INSIDES = "The insides"


def _version(value: bool) -> None:
    if value:
        say("penstock {}", __version__)
        raise typer.Exit


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(
            envvar=LEVEL_VARIABLE,
            case_sensitive=False,
            help="How much is logged, as JSON lines: by this process on standard error (warning without this option), by its "
            "children in STATE_DIR/run/*.log (info without it).",
        ),
    ] = None,
) -> None:
    configure("penstock", level=logging.getLevelName((log_level or LogLevel.WARNING).upper()))
    if log_level is not None:
        os.environ[LEVEL_VARIABLE] = log_level  # the children's too


app.command("init")(init.init)
app.command("check")(check.check)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("status")(status.status)
app.command("lag")(feeds.lag)
app.command("tail")(tail.tail)
app.command("errors")(feeds.errors)
app.command("pause")(pause.pause)
app.command("resume")(resume.resume)
app.command("backfill")(backfill.backfill)
app.command("reload")(reload.reload)
app.command("forget")(forget.forget)
app.command("verify")(verify.verify)
app.command("demo")(demo.demo)
app.add_typer(config.app, name="config")
app.command("dispatchers", rich_help_panel=INSIDES)(feeds.dispatchers)
app.add_typer(binlog.app, name="binlog", rich_help_panel=INSIDES)
app.add_typer(log_app, name="log", rich_help_panel=INSIDES)
app.add_typer(state_app, name="state", rich_help_panel=INSIDES)
app.add_typer(spool.app, name="spool", rich_help_panel=INSIDES)

spool.app.command("inspect")(spool.inspect)

log_app.command("create")(changing.create)
log_app.command("append")(changing.append)
log_app.command("read")(reading.read)
log_app.command("tail")(reading.tail)
log_app.command("ls")(listing.ls)
log_app.command("inspect")(reading.inspect)
log_app.command("verify")(log_verify.verify)
log_app.command("cursors")(listing.cursors)
log_app.command("trim")(changing.trim)
log_app.command("offload")(changing.offload)
log_app.command("skip")(changing.skip)

state_app.command("ls")(looking.ls)
state_app.command("get")(looking.get)
state_app.command("dump")(looking.dump)
state_app.command("checkpoint")(checkpoints.checkpoint)
state_app.command("verify")(checkpoints.verify)

let_help_flow(app)


def main() -> None:
    """The entry point of the `penstock` script.

    What nobody expected ends with `EXIT_FAILED` and its stack trace: exit code 1, which Python would give, means something
    else here.
    """
    private_umask()
    no_core_dumps()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        getattr(sys, name).reconfigure(errors="backslashreplace")  # a terminal without ✓ shows \u2713
    try:
        app(prog_name="penstock")
    except OSError as error:
        complain(redact(str(error)), "the output could not be written")
        sys.exit(EXIT_FAILED)
    except Exception as error:
        sys.stderr.write(shown_lines(redact(traceback.format_exc())))
        complain(
            redact(f"unexpected {type(error).__name__}: {error}"), "this is a mistake in Penstock: please report it"
        )
        sys.exit(EXIT_FAILED)
