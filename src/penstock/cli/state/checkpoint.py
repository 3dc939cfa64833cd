"""`penstock state checkpoint`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.formatting import human_bytes, human_seconds
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, print_result


def checkpoint(
    path: LogPathArgument,
    compact: Annotated[bool, typer.Option("--compact", help="And merge all checkpoint files into one.")] = False,
    json: JsonOption = False,
) -> None:
    """Write a checkpoint now, so that the next start replays nothing.

    Takes ownership while it runs, so it is refused (exit code 75) while another process has the log: a running flow writes
    its own whenever a ledger is full.
    """
    from penstock.operations.state.checkpoint import checkpoint_state

    with end_quietly(as_json=json):
        info = checkpoint_state(path, compact=compact)
        if info is None:
            print_result({"checkpoint": None}, "this log has no state: nothing was written", as_json=json)
            return
        text = (
            f"✓ checkpoint at {info.position}: {human_bytes(info.bytes_written)} written in "
            f"{human_seconds(info.seconds)}, {info.keys:,} keys in {human_bytes(info.bytes)}"
        )
        print_result({"checkpoint": checkpoint_document(info)}, text, as_json=json)


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
