"""How commands write their results and errors: as text for people, with figures, times and tables, or as JSON for
programs; and their exit codes.

Exit codes: 0 ok, 1 degraded or not equal, 2 configuration or usage, 3 source, 4 sink, 75 try again later.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from penstock.errors import BadInput, PenstockError
from penstock.process import EXIT_CONFIGURATION, EXIT_TRY_AGAIN

EXIT_DIFFERENT = 1
console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)
_NUMBERS = ("ENTRIES", "BYTES", "BODIES", "BACKLOG", "HOLES", "KEYS")
_NAMES = ("STORE", "CURSOR")
_NAME_WIDTH_MIN = 23


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def print_result(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    """The document for programs, or the text for people."""
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def fail(error: PenstockError, *, as_json: bool, exit_code: int | None = None) -> NoReturn:
    """Prints the error, never a stack trace, and ends the command with the error's exit code.

    As text it goes to standard error; as JSON to standard output, where a program reads the result.
    """
    code = exit_code if exit_code is not None else _exit_code(error)
    if as_json:
        print_json({"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}})
    else:
        complaints.print(f"[bold red]✗[/] {_plain(error.message)}", soft_wrap=True)
        if error.hint:
            complaints.print(f"  [dim]→ {_plain(error.hint)}[/]", soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def translate_errors(*, as_json: bool) -> Iterator[None]:
    """Turns Penstock's own errors inside the block into a message and an exit code."""
    try:
        yield
    except PenstockError as error:
        fail(error, as_json=as_json)


@contextmanager
def end_quietly(*, as_json: bool) -> Iterator[None]:
    """`translate_errors`; besides, Ctrl-C and a reader that closed the pipe (`| head`) end the command without an error."""
    with translate_errors(as_json=as_json):
        try:
            yield
        except BrokenPipeError:
            sys.stderr.close()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _exit_code(error: PenstockError) -> int:
    if isinstance(error, BadInput):
        return EXIT_CONFIGURATION
    return EXIT_TRY_AGAIN if error.transient else EXIT_DIFFERENT


def _plain(text: str) -> str:
    return text.replace("[", "\\[")


def human_bytes(size: float) -> str:
    """`96.0 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """`0.4 s`, `4 m 10 s`, `2 h 3 m`, `6 d 21 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} m"
    return f"{hours // 24} d {hours % 24} h"


def human_time(wall_ms: int) -> str:
    """`2026-11-16 08:30:00`, in UTC; `never` for 0."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if wall_ms else "never"


def counted(count: int, noun: str) -> str:
    """`1 fault`, `2,000 faults`; `entry` becomes `entries`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def table_of(*headings: str) -> Table:
    """An empty table. Numbers are aligned to the right; names are never cut short, because other columns give way."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        name = heading in _NAMES
        table.add_column(
            heading,
            justify="right" if heading in _NUMBERS else "left",
            overflow="fold" if name else "ellipsis",
            min_width=_NAME_WIDTH_MIN if name else len(heading),
        )
    return table
