"""How commands speak: to a person through rich, to a program as JSON. Errors always go to standard error.

Exit codes: 0 ok, 1 degraded or not equal, 2 configuration or usage, 3 source, 4 sink, 75 try again later.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from penstock.errors import BadInput, PenstockError

EXIT_DIFFERENT = 1
EXIT_CONFIG = 2
EXIT_SOURCE = 3
EXIT_SINK = 4
EXIT_RETRY = 75

console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


def print_json(value: Any) -> None:
    """One JSON document on one line."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def fail(error: PenstockError, *, as_json: bool, exit_code: int | None = None) -> NoReturn:
    """Tells the error and ends the command with its exit code; never a stack trace."""
    code = exit_code if exit_code is not None else _exit_code(error)
    if as_json:
        print_json({"error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint}})
    else:
        complaints.print(f"[bold red]✗[/] {_plain(error.message)}", soft_wrap=True)
        if error.hint:
            complaints.print(f"  [dim]→ {_plain(error.hint)}[/]", soft_wrap=True)
    raise typer.Exit(code)


@contextmanager
def errors_told(*, as_json: bool) -> Iterator[None]:
    """Turns Penstock's own errors inside the block into a message and an exit code."""
    try:
        yield
    except PenstockError as error:
        fail(error, as_json=as_json)


def _exit_code(error: PenstockError) -> int:
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return code
    if isinstance(error, BadInput):
        return EXIT_CONFIG
    return EXIT_RETRY if error.transient else EXIT_DIFFERENT


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
