"""`penstock log ls`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from penstock.cli.formatting import human_bytes, human_time, table_of
from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import console, end_quietly, print_json

if TYPE_CHECKING:
    from penstock.log.ledgers.info import LedgerInfo


def ls(path: LogPathArgument, json: JsonOption = False) -> None:
    """Show the log and its ledgers: how many entries and bytes, since when, sealed or open."""
    from penstock.operations.log.ledgers import summarize_log

    with end_quietly(as_json=json):
        log = summarize_log(path)
        if json:
            ledgers = [
                {
                    "id": view.info.id,
                    "epoch": view.info.epoch,
                    "state": view.info.state,
                    "entries": view.entries,
                    "bytes": view.frames_end,
                    "first_ms": view.info.first_ms,
                    "last_ms": view.info.last_ms,
                    "local": view.info.is_local,
                    "offload": _offload(view.info),
                }
                for view in log.ledgers
            ]
            print_json(
                {
                    "directory": str(log.directory),
                    "uuid": log.uuid,
                    "epoch": log.epoch,
                    "first": str(log.first),
                    "end": str(log.end),
                    "entries": log.entries,
                    "bytes": log.bytes,
                    "terminated": log.terminated,
                    "properties": log.properties,
                    "ledgers": ledgers,
                }
            )
            return
        note = "  terminated" if log.terminated else ""
        console.print(
            f"[bold]LOG[/]  {log.directory}  {log.entries:,} entries  {human_bytes(log.bytes)}  "
            f"{log.first} … {log.end}  owner epoch {log.epoch}{note}",
            soft_wrap=True,
        )
        table = table_of("LEDGER", "STATE", "EPOCH", "ENTRIES", "BYTES", "FIRST", "LAST", "WHERE")
        for view in log.ledgers:
            info = view.info
            times = (human_time(info.first_ms), human_time(info.last_ms)) if info.sealed else ("", "")
            size = human_bytes(view.frames_end)
            table.add_row(str(info.id), info.state, str(info.epoch), f"{view.entries:,}", size, *times, _where(info))
        console.print(table)
        stores = Counter(view.info.offload.url for view in log.ledgers if view.info.offload is not None)
        for url, count in sorted(stores.items()):
            console.print(f"[dim]offloaded: {count:,} ledgers at {escape(url)}[/]", soft_wrap=True)


def _offload(info: LedgerInfo) -> dict[str, Any] | None:
    offload = info.offload
    if offload is None:
        return None
    return {
        "state": offload.state,
        "url": offload.url,
        "attempt": offload.attempt,
        "parts": offload.parts,
        "copied_ms": offload.copied_ms,
    }


def _where(info: LedgerInfo) -> str:
    if not info.is_local:
        return "offloaded"
    if info.is_offloaded:
        return "both"
    return "local" if info.offload is None else "copying"
