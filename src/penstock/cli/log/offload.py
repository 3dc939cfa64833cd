"""`penstock log offload`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.log.offload_screen import OffloadScreen
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, print_result


def offload(
    path: LogPathArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Where: file:///directory, s3://bucket/prefix, gs://… or az://…; credentials "
            "come from the environment.",
        ),
    ],
    keep_bytes: Annotated[int, typer.Option(min=0, help="Leave so many bytes of the newest sealed ledgers.")] = 0,
    lag_seconds: Annotated[float, typer.Option(min=0, help="Keep the local file of a copied ledger for so long.")] = 4
    * 3600.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be copied and what would go.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Copy sealed ledgers to an object store; local files go once the copy is old enough and was read back whole.

    Reads find them in either place. Takes ownership while it runs (not with --dry-run). With --json, a line of progress for each
    part, then the outcome.
    """
    from penstock.operations.log.offload import offload_log

    screen = OffloadScreen(as_json=json)
    with end_quietly(as_json=json), screen:
        done = offload_log(
            path, to, keep_bytes=keep_bytes, lag_seconds=lag_seconds, dry_run=dry_run, progress=screen.update
        )
    would = "would be " if dry_run else ""
    text = (
        f"{len(done.copied)} ledgers {would}copied to {to}{_numbers(done.copied)}\n"
        f"{len(done.moved)} local files {'would go' if dry_run else 'removed'}{_numbers(done.moved)}"
    )
    print_result({"copied": done.copied, "moved": done.moved, "dry_run": dry_run}, text, as_json=json)


def _numbers(ledgers: list[int]) -> str:
    return f": {', '.join(map(str, ledgers))}" if ledgers else ""
