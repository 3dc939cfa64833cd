"""`penstock log inspect`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from penstock.cli.formatting import human_time
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import EXIT_DIFFERENT, console, end_quietly, print_json


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

    from penstock.operations.log.frames import inspect_frames

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
                console.print(f"[bold]{where}[/]", soft_wrap=True)
                console.print("      OFFSET      BYTES      ENTRY  EPOCH       DATA  CHANGES  WRITTEN", soft_wrap=True)
            columns = (
                f"{header.entry_id:>10} {header.epoch:>6} {header.data_len:>10} {header.changes_len:>8}  {human_time(header.wall_ms)}"
                if header
                else f"{'':>36}  {'':19}"
            )
            mark = f"[bold red]✗ {escape(line.fault)}[/]" if line.fault else "[green]✓[/]"
            console.print(f"{line.offset:>12} {line.bytes:>10} {columns}  {mark}", soft_wrap=True)
    raise typer.Exit(EXIT_DIFFERENT if faults else 0)
