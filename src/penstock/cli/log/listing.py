"""`penstock log ls` and `cursors`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import counted, end_quietly, human_bytes, human_time, print_json
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.process import EXIT_DIFFERENT

if TYPE_CHECKING:
    from penstock.log.ledgers.info import LedgerInfo


def ls(path: LogPathArgument, json: JsonOption = False) -> None:
    """Show the log and its ledgers: how many entries and bytes, made when, sealed or open.

    BYTES are those of the frames; BODIES are what was appended, data and state changes. LAST is the time of the last entry.
    """
    from penstock.operations.log.listing import summarize_log

    with end_quietly(as_json=json):
        log = summarize_log(path)
        if json:
            ledgers = [
                {
                    "id": view.info.id,
                    "epoch": view.info.epoch,
                    "state": view.info.state,
                    "created_ms": view.info.created_ms,
                    "entries": view.entries,
                    "messages": view.messages,
                    "bytes": view.frames_end,
                    "body_bytes": view.body_bytes,
                    "first_ms": view.info.first_ms,
                    "last_ms": view.info.last_ms,
                    "skipped": [list(run) for run in view.info.skipped],
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
                    "messages": log.messages,
                    "bytes": log.bytes,
                    "body_bytes": log.body_bytes,
                    "terminated": log.terminated,
                    "properties": log.properties,
                    "ledgers": ledgers,
                }
            )
            return
        note = "  terminated" if log.terminated else ""
        messages = "" if log.messages == log.entries else f"  {counted(log.messages, 'message')}"
        size = f"{human_bytes(log.bytes)} ({human_bytes(log.body_bytes)} of bodies)"
        holds = f"{counted(log.entries, 'entry')}{messages}  {size}"
        say(
            "[bold]LOG[/]  {}  {}  {} … {}  owner epoch {}{}", log.directory, holds, log.first, log.end, log.epoch, note
        )
        table = table_of("LEDGER", "STATE", "EPOCH", "ENTRIES", "BYTES", "BODIES", "CREATED", "LAST", "WHERE")
        for view in log.ledgers:
            info = view.info
            times = (_minute(info.created_ms), _minute(info.last_ms) if info.sealed else "")
            sizes = (human_bytes(view.frames_end), human_bytes(view.body_bytes))
            add_row(table, info.id, info.state, info.epoch, f"{view.entries:,}", *sizes, *times, _where(info))
        say_table(table)
        stores = Counter(view.info.offload.url for view in log.ledgers if view.info.offload is not None)
        for info in (view.info for view in log.ledgers if view.info.skipped):
            runs = ", ".join(f"{info.id}:{first} … {info.id}:{last}" for first, last in info.skipped)
            say("[bold red]skipped, cannot be read:[/] {}", runs)
        for url, count in sorted(stores.items()):
            say("[dim]offloaded: {} at {}[/]", counted(count, "ledger"), url)


def _minute(wall_ms: int) -> str:
    """Without seconds, so that a line fits into 100 columns; `--json` has every millisecond."""
    return human_time(wall_ms)[:16] if wall_ms else ""


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


def cursors(path: LogPathArgument, json: JsonOption = False) -> None:
    """List the durable cursors: where each stands, what it has still to read, how many holes it keeps."""
    from penstock.operations.log.listing import list_cursors

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
            add_row(
                table,
                line.name,
                line.mark_delete,
                f"{line.backlog_entries:,}" if known else "?",
                human_bytes(line.backlog_bytes) if line.backlog_bytes is not None else "?",
                f"{line.holes:,}" if known else "?",
                human_time(line.active_ms),
                note,
            )
        say_table(table)
    raise typer.Exit(EXIT_DIFFERENT if any(line.fault for line in lines) else 0)
