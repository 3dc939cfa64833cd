"""How commands write their results and errors: as text for people (`screen.py`), or as JSON for programs; figures and times;
exit codes (`EXIT_CODES`).

A result goes to standard output and an error to standard error, with `--json` too: a program that reads results never
takes an error for one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NoReturn, TextIO

import typer

from penstock.cli.screen import complain, end_without_reader, say
from penstock.errors import BadInput, Corruption, PenstockError, StorageFailed
from penstock.observe.logging import redact
from penstock.observe.shown import shown_json
from penstock.process import (
    EXIT_CONFIGURATION,
    EXIT_DIFFERENT,
    EXIT_FAILED,
    EXIT_SOURCE,
    EXIT_TRY_AGAIN,
)
from penstock.sources.source import SourceError
from penstock.supervisor.status import HeadroomStatus, LoadStatus


def print_json(value: Any) -> None:
    """One JSON document on one line of standard output."""
    _write_json(value, sys.stdout)


def _write_json(value: Any, stream: TextIO) -> None:
    """Text as it is, but for what a terminal would obey; all in ASCII where the stream's encoding lacks something."""
    text = shown_json(json.dumps(value, ensure_ascii=False, default=str))
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(value, default=str)
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        end_without_reader()


def print_result(document: dict[str, Any], template: str, *values: object, as_json: bool) -> None:
    """The document for programs, or the line for people."""
    if as_json:
        print_json(document)
    else:
        say(template, *values)


def fail(error: PenstockError, *, as_json: bool, exit_code: int | None = None) -> NoReturn:
    """Prints the error on standard error, never a stack trace, and ends the command with the error's exit code."""
    print_error(type(error).__name__, error.message, error.hint, as_json=as_json)
    raise typer.Exit(exit_code if exit_code is not None else _exit_code(error))


def print_error(kind: str, message: str, hint: str, *, as_json: bool) -> None:
    """The error on standard error: for programs as one document, which people never see."""
    if as_json:
        _write_json({"error": {"kind": kind, "message": redact(message), "hint": redact(hint)}}, sys.stderr)
    else:
        complain(message, hint)


@contextmanager
def translate_errors(*, as_json: bool) -> Iterator[None]:
    """Turns Penstock's own errors inside the block, and those of files, into a message and an exit code."""
    try:
        yield
    except PenstockError as error:
        fail(error, as_json=as_json)
    except OSError as error:
        fail(StorageFailed(str(error), hint="check the path, its permissions and the disk"), as_json=as_json)


@contextmanager
def end_quietly(*, as_json: bool) -> Iterator[None]:
    """`translate_errors`; besides, Ctrl-C ends the command without an error: it is how one ends such a command."""
    with translate_errors(as_json=as_json):
        try:
            yield
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _exit_code(error: PenstockError) -> int:
    if isinstance(error, BadInput):
        return EXIT_CONFIGURATION
    if isinstance(error, Corruption):
        return EXIT_DIFFERENT
    if isinstance(error, SourceError):
        return EXIT_SOURCE
    return EXIT_TRY_AGAIN if error.transient else EXIT_FAILED


def human_bytes(size: float) -> str:
    """`96.0 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_rate(per_second: float) -> str:
    """`0`, `412`, `12.4k`, `1.2M`."""
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if per_second >= unit:
            return f"{per_second / unit:.1f}{name}"
    return f"{per_second:.0f}"


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


def shortened(statement: str, characters_max: int = 120) -> str:
    """A statement on one line."""
    line = " ".join(statement.split())
    return line if len(line) <= characters_max else f"{line[: characters_max - 1]}…"


def headroom_words(headroom: HeadroomStatus | None) -> str:
    """`6 d 21 h`, or what else is known of the time until the server purges what capture needs; empty if nothing is."""
    if headroom is None:
        return ""
    if headroom.seconds is not None:
        return human_seconds(headroom.seconds) if headroom.seconds else "none"
    return "no end: the server purges nothing by itself" if headroom.expire_seconds is None else ""


def load_words(load: LoadStatus) -> str:
    """How far an initial load is: `3 of 20 tables, 1,200,000 rows, 24 %, about 3 min left`."""
    share = load.rows * 100 // (load.rows + load.rows_left) if load.rows + load.rows_left else 0
    if load.done < load.tables:
        share = min(share, 99)  # there may be more rows than the server guessed
    left = f", about {human_seconds(load.seconds_left)} left" if load.seconds_left else ""
    return f"{load.done} of {load.tables} tables, {load.rows:,} rows, {share} %{left}"
