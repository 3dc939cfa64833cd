"""`penstock log trim`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, print_result


def trim(
    path: LogPathArgument,
    keep_seconds: Annotated[float | None, typer.Option(min=0, help="Keep ledgers that are younger.")] = None,
    keep_bytes: Annotated[int | None, typer.Option(min=0, help="Keep so many bytes of the newest ledgers.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove whole ledgers that every cursor and pin has passed and that are not to be kept.

    Takes ownership while it runs (not with --dry-run): a running flow trims by itself. The newest ledger always stays.
    """
    from penstock.operations.log.trim import trim_log

    with end_quietly(as_json=json):
        gone = trim_log(path, keep_seconds, keep_bytes, dry_run=dry_run)
        what = "would go" if dry_run else "removed"
        text = f"{len(gone)} ledgers {what}{': ' if gone else ''}{', '.join(map(str, gone))}"
        print_result({"ledgers": gone, "dry_run": dry_run}, text, as_json=json)
