"""`penstock log create` and `append`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, print_result


def create(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory that is not there yet, or is empty.")],
    json: JsonOption = False,
) -> None:
    """Make a new, empty log. Its list of ledgers goes into metadata.sqlite beside it."""
    from penstock.operations.log.writing import create_log

    with end_quietly(as_json=json):
        uuid = create_log(path)
        print_result({"created": str(path), "uuid": str(uuid)}, f"✓ {path}: a new, empty log ({uuid})", as_json=json)


def append(
    path: LogPathArgument,
    entries: Annotated[
        list[str] | None, typer.Argument(help="Entries. Without any, each line of standard input is one.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="All of standard input is one entry.")] = False,
    json: JsonOption = False,
) -> None:
    """Append entries, and print their positions once they are on the disk.

    Takes ownership while it runs, so it is refused (exit code 75) while another process has the log.
    """
    from penstock.operations.log.writing import append_entries

    with end_quietly(as_json=json):
        for first, last in append_entries(path, _given(entries, whole=whole)):
            print_result(
                {"first": str(first), "last": str(last)},
                f"{first}" if first == last else f"{first} … {last}",
                as_json=json,
            )


def _given(entries: list[str] | None, *, whole: bool) -> Iterator[bytes]:
    if entries:
        yield from (entry.encode() for entry in entries)
    elif whole:
        yield sys.stdin.buffer.read()
    else:
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)
