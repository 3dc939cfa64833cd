"""`penstock log verify`."""

from __future__ import annotations

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import counted, end_quietly, human_bytes, print_json
from penstock.cli.screen import say
from penstock.process import EXIT_DIFFERENT


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
        copies = f" · {counted(check.offloaded, 'offloaded copy')}" if check.offloaded else ""
        text = (
            f"{check.directory}: {counted(check.ledgers, 'ledger')} with {counted(check.entries, 'entry')}{copies} · "
            f"{counted(check.record_logs, 'record log')} with {counted(check.records, 'record')} · {human_bytes(check.bytes)} · "
            f"{counted(len(check.faults), 'fault')}"
        )
        say("[green]✓[/] {}" if check.sound else "[bold red]✗[/] {}", text)
        for fault in check.faults:
            say("  [red]{} at byte {}: {}[/]", fault.path, fault.offset, fault.what)
        if check.faults:
            say("  [dim]→ nothing was changed; check the disk and restore these files from a copy[/]")
    raise typer.Exit(0 if check.sound else EXIT_DIFFERENT)
