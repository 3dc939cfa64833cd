"""`penstock state verify`."""

from __future__ import annotations

import typer
from rich.markup import escape

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import EXIT_DIFFERENT, console, end_quietly, print_json


def verify(path: LogPathArgument, json: JsonOption = False) -> None:
    """Check every byte of the checkpoints, and that each of them, with the entries after it, leads to the same state.

    Where the log is whole, it is replayed from its start as well. Changes nothing. Exit code 1: something is wrong.
    """
    from penstock.operations.state.verify import verify_state

    with end_quietly(as_json=json):
        check = verify_state(path)
    if json:
        print_json(
            {
                "directory": str(check.directory),
                "sound": check.sound,
                "checkpoints": check.checkpoints,
                "ways": check.ways,
                "keys": check.keys,
                "faults": check.faults,
            }
        )
    else:
        mark = "[green]✓[/]" if check.sound else "[bold red]✗[/]"
        console.print(
            f"{mark} {check.directory}: {check.checkpoints:,} checkpoints · {check.ways:,} ways to the same state · "
            f"{check.keys:,} keys · {len(check.faults):,} faults",
            soft_wrap=True,
        )
        for fault in check.faults:
            console.print(f"  [red]{escape(fault)}[/]", soft_wrap=True)
        if check.faults:
            console.print("  [dim]→ nothing was changed; the next start steps over a damaged checkpoint by itself[/]")
    raise typer.Exit(0 if check.sound else EXIT_DIFFERENT)
