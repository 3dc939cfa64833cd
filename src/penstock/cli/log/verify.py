"""`penstock log verify`."""

from __future__ import annotations

import typer
from rich.markup import escape

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import EXIT_DIFFERENT, console, counted, end_quietly, human_bytes, print_json


def verify(path: LogPathArgument, json: JsonOption = False) -> None:
    """Check every byte: ledgers, their indexes and offloaded copies, the end file, cursors, a flow's progress.

    Exit code 1: something is wrong.

    Changes nothing, and works on a log that another process owns.
    """
    from penstock.operations.log.verify import verify_log

    with end_quietly(as_json=json):
        check = verify_log(path)
    if json:
        faults = [{"file": str(fault.path), "offset": fault.offset, "what": fault.what} for fault in check.faults]
        print_json(
            {
                "directory": str(check.directory),
                "sound": check.sound,
                "ledgers": check.ledgers,
                "entries": check.entries,
                "bytes": check.bytes,
                "offloaded": check.offloaded,
                "record_logs": check.record_logs,
                "records": check.records,
                "faults": faults,
            }
        )
    else:
        mark = "[green]✓[/]" if check.sound else "[bold red]✗[/]"
        copies = f" · {counted(check.offloaded, 'offloaded copy')}" if check.offloaded else ""
        console.print(
            f"{mark} {check.directory}: {counted(check.ledgers, 'ledger')} with {counted(check.entries, 'entry')}{copies} · "
            f"{counted(check.record_logs, 'record log')} with {counted(check.records, 'record')} · {human_bytes(check.bytes)} · "
            f"{counted(len(check.faults), 'fault')}",
            soft_wrap=True,
        )
        for fault in check.faults:
            console.print(
                f"  [red]{escape(str(fault.path))} at byte {fault.offset}: {escape(fault.what)}[/]", soft_wrap=True
            )
        if check.faults:
            console.print("  [dim]→ nothing was changed; check the disk and restore these files from a copy[/]")
    raise typer.Exit(0 if check.sound else EXIT_DIFFERENT)
