"""`penstock log read` and `tail`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.formatting import human_time
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, print_json

if TYPE_CHECKING:
    from penstock.log import Entry


_PREVIEW_BYTES = 60


def read(
    path: LogPathArgument,
    *,
    start: Annotated[str | None, typer.Option("--from", help="The first entry; the log's first without it.")] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last entry, included; the durable end without it.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many entries.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Only the bytes of the entries, one after the other.")] = False,
    json: JsonOption = False,
) -> None:
    """Print entries. Checksums are verified; an entry that does not match its own ends it with exit code 1."""
    from penstock.operations.log.reading import read_log

    with end_quietly(as_json=json):
        for entry in read_log(path, start, end, limit):
            _show_entry(entry, as_json=json, raw=raw)


def tail(
    path: LogPathArgument,
    *,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Begin with so many of the last entries.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for what comes, until Ctrl-C.")] = True,
    seconds: Annotated[float | None, typer.Option(min=0, help="Follow for so long.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Only the bytes of the entries, one after the other.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the last entries, and each new one as it becomes durable."""
    from penstock.operations.log.reading import tail_log

    with end_quietly(as_json=json):
        for entry in tail_log(path, last, follow=follow, seconds=seconds):
            _show_entry(entry, as_json=json, raw=raw)


def _show_entry(entry: Entry, *, as_json: bool, raw: bool) -> None:
    from penstock.operations.log.reading import entry_document

    if raw:
        sys.stdout.buffer.write(entry.data)
        sys.stdout.buffer.flush()
    elif as_json:
        print_json(entry_document(entry))
    else:
        data = bytes(entry.data[:_PREVIEW_BYTES])
        more = "…" if len(entry.data) > _PREVIEW_BYTES else ""
        text = data.decode("utf-8", "backslashreplace")
        shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
        changes = f" +{len(entry.changes)} changes" if entry.changes else ""
        typer.echo(
            f"{entry.position!s:>12}  {human_time(entry.wall_ms)}  {len(entry.data):>8} B{changes}  {shown}{more}"
        )
