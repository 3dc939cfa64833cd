"""`penstock state checkpoint` and `verify`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, human_bytes, human_seconds, print_json, print_result
from penstock.cli.screen import say
from penstock.process import EXIT_DIFFERENT


def checkpoint(
    path: LogPathArgument,
    compact: Annotated[bool, typer.Option("--compact", help="And merge all checkpoint files into one.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint now, so that the next start replays nothing.

    Takes ownership while it runs, so it is refused (exit code 75) while another process has the log: a running flow writes
    its own whenever a ledger is full.
    """
    from penstock.operations.state.checkpoints import checkpoint_state

    with end_quietly(as_json=json):
        info = checkpoint_state(path, compact=compact)
        if info is None:
            print_result({"checkpoint": None}, "this log has no state: nothing was written", as_json=json)
            return
        print_result(
            {"checkpoint": checkpoint_document(info)},
            "✓ checkpoint at {}: {} written in {}, {} keys in {}",
            *(info.position, human_bytes(info.bytes_written), human_seconds(info.seconds)),
            *(f"{info.keys:,}", human_bytes(info.bytes)),
            as_json=json,
        )


def checkpoint_document(info: Any) -> dict[str, Any]:
    """A checkpoint for `--json`."""
    return {
        "position": str(info.position),
        "wall_ms": info.wall_ms,
        "keys": info.keys,
        "bytes": info.bytes,
        "bytes_written": info.bytes_written,
        "seconds": info.seconds,
    }


def verify(path: LogPathArgument, json: JsonOption = False) -> None:
    """Check every byte of the checkpoints, and that each of them, with the entries after it, leads to the same state.

    Where the log is whole, it is replayed from its start as well. Changes nothing. Exit code 1: something is wrong.
    """
    from penstock.operations.state.checkpoints import verify_state

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
        text = (
            f"{check.directory}: {check.checkpoints:,} checkpoints · {check.ways:,} ways to the same state · "
            f"{check.keys:,} keys · {len(check.faults):,} faults"
        )
        say("[green]✓[/] {}" if check.sound else "[bold red]✗[/] {}", text)
        for fault in check.faults:
            say("  [red]{}[/]", fault)
        if check.faults:
            say("  [dim]→ nothing was changed; the next start steps over a damaged checkpoint by itself[/]")
    raise typer.Exit(0 if check.sound else EXIT_DIFFERENT)
