"""`penstock log read`, `tail` and `inspect`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, human_time, print_json
from penstock.cli.screen import say
from penstock.process import EXIT_DIFFERENT

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
        changes = f" +{len(entry.changes)} changes" if entry.changes else ""
        size = f"{len(entry.data):>8} B{changes}"
        say("{}  {}  {}  {}{}", f"{entry.position!s:>12}", human_time(entry.wall_ms), size, text, more)


def inspect(
    path: LogPathArgument,
    *,
    ledger: Annotated[int | None, typer.Option(help="Only this ledger.")] = None,
    cursor: Annotated[str | None, typer.Option(help="The record log of this cursor instead.")] = None,
    bad: Annotated[bool, typer.Option("--bad", help="Only what does not match its checksum.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many frames.")] = None,
    json: JsonOption = False,
) -> None:
    """Show frames as they stand in the files: offset, length, entry, epoch, and whether the checksums match.

    Goes on after bytes that are no frame. Exit code 1 where one of the shown frames is bad.
    """
    from itertools import islice

    from penstock.operations.log.reading import inspect_frames

    faults = 0
    file = None
    with end_quietly(as_json=json):
        for where, line in islice(inspect_frames(path, ledger, cursor, bad), limit):
            faults += bool(line.fault)
            header = line.header
            if json:
                fields = header._asdict() if header else {}
                print_json(
                    {
                        "file": getattr(where, "name", where),
                        "offset": line.offset,
                        "bytes": line.bytes,
                        "ok": not line.fault,
                    }
                    | ({"fault": line.fault} if line.fault else {})
                    | fields
                )
                continue
            if where != file:
                file = where
                say("[bold]{}[/]", where)
                say("      OFFSET      BYTES      ENTRY  EPOCH       DATA  CHANGES  WRITTEN")
            columns = (
                f"{header.entry_id:>10} {header.epoch:>6} {header.data_len:>10} {header.changes_len:>8}  {human_time(header.wall_ms)}"
                if header
                else f"{'':>36}  {'':19}"
            )
            text = f"{line.offset:>12} {line.bytes:>10} {columns}"
            say("{}  [bold red]✗ {}[/]" if line.fault else "{}  [green]✓[/]{}", text, line.fault)
    raise typer.Exit(EXIT_DIFFERENT if faults else 0)
