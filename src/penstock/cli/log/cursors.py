"""`penstock log cursors`."""

from __future__ import annotations

import typer
from rich.markup import escape

from penstock.cli.formatting import human_bytes, human_time, table_of
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import EXIT_DIFFERENT, console, end_quietly, print_json


def cursors(path: LogPathArgument, json: JsonOption = False) -> None:
    """List the durable cursors: where each stands, what it has still to read, how many holes it keeps."""
    from penstock.operations.log.cursors import list_cursors

    with end_quietly(as_json=json):
        lines = list_cursors(path)
    if json:
        print_json(
            [
                {
                    "name": line.name,
                    "mark_delete": str(line.mark_delete),
                    "backlog_entries": line.backlog_entries,
                    "backlog_bytes": line.backlog_bytes,
                    "holes": line.holes,
                    "active_ms": line.active_ms,
                    "properties": line.properties,
                    "deleting": line.deleting,
                    "fault": line.fault or None,
                    "damage": line.damage or None,
                }
                for line in lines
            ]
        )
    else:
        table = table_of("CURSOR", "MARK-DELETE", "BACKLOG", "BYTES", "HOLES", "LAST ACTIVE", "NOTE")
        for line in lines:
            note = "is being deleted" if line.deleting else line.fault
            if line.damage and not note:
                note = f"fell back to its registration once: {line.damage}"
            known = line.backlog_entries is not None
            table.add_row(
                escape(line.name),
                str(line.mark_delete),
                f"{line.backlog_entries:,}" if known else "?",
                human_bytes(line.backlog_bytes or 0) if known else "?",
                f"{line.holes:,}" if known else "?",
                human_time(line.active_ms),
                escape(note),
            )
        console.print(table)
    raise typer.Exit(EXIT_DIFFERENT if any(line.fault for line in lines) else 0)
