"""`penstock log`: looks into a log, and works on one. Every command but create, append, trim and offload only looks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from penstock.cli.log.offload_screen import OffloadScreen
from penstock.cli.output import EXIT_DIFFERENT, JsonOption, console, errors_told, human_bytes, print_json

if TYPE_CHECKING:
    from penstock.log import Entry
    from penstock.log.ledgers.info import LedgerInfo

app = typer.Typer(
    help="Look into a log and work on it: a directory of ledgers with named cursors, such as penstock-data/log.\n\n"
    "PATH is the log's directory, or a state directory that holds log/. Positions are LEDGER:ENTRY, such as 4:17. "
    "Everything but create, append, trim and offload only looks, and works while another process owns the log.",
    no_args_is_help=True,
)

PathArgument = Annotated[
    Path, typer.Argument(metavar="PATH", help="The log's directory, or a state directory that holds log/.")
]
_PREVIEW_BYTES = 60


@app.command("create")
def create(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory that is not there yet, or is empty.")],
    json: JsonOption = False,
) -> None:
    """Make a new, empty log. Its list of ledgers goes into metadata.sqlite beside it."""
    from penstock.operations.log.tools import create_log

    with told(as_json=json):
        uuid = create_log(path)
        say(json, {"created": str(path), "uuid": str(uuid)}, f"✓ {path}: a new, empty log ({uuid})")


@app.command("append")
def append(
    path: PathArgument,
    entries: Annotated[
        list[str] | None, typer.Argument(help="Entries. Without any, each line of standard input is one.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="All of standard input is one entry.")] = False,
    json: JsonOption = False,
) -> None:
    """Append entries, and print their positions once they are on the disk.

    Takes ownership while it runs, so it is refused (exit code 75) while another process has the log.
    """
    from penstock.operations.log.tools import append_entries

    with told(as_json=json):
        for first, last in append_entries(path, _given(entries, whole=whole)):
            say(json, {"first": str(first), "last": str(last)}, f"{first}" if first == last else f"{first} … {last}")


def _given(entries: list[str] | None, *, whole: bool) -> Iterator[bytes]:
    if entries:
        yield from (entry.encode() for entry in entries)
    elif whole:
        yield sys.stdin.buffer.read()
    else:
        yield from (line.rstrip(b"\r\n") for line in sys.stdin.buffer)


@app.command("read")
def read(
    path: PathArgument,
    *,
    start: Annotated[str | None, typer.Option("--from", help="The first entry; the log's first without it.")] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last entry, included; the durable end without it.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many entries.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Only the bytes of the entries, one after the other.")] = False,
    json: JsonOption = False,
) -> None:
    """Print entries. Checksums are verified; an entry that does not match its own ends it with exit code 1."""
    from penstock.operations.log.tools import read_log

    with told(as_json=json):
        for entry in read_log(path, start, end, limit):
            _show_entry(entry, as_json=json, raw=raw)


@app.command("tail")
def tail(
    path: PathArgument,
    *,
    last: Annotated[int, typer.Option("--last", "-n", min=0, help="Begin with so many of the last entries.")] = 10,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="Wait for what comes, until Ctrl-C.")] = True,
    seconds: Annotated[float | None, typer.Option(min=0, help="Follow for so long.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Only the bytes of the entries, one after the other.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the last entries, and each new one as it becomes durable."""
    from penstock.operations.log.tools import tail_log

    with told(as_json=json):
        for entry in tail_log(path, last, follow=follow, seconds=seconds):
            _show_entry(entry, as_json=json, raw=raw)


@app.command("ls")
def ls(path: PathArgument, json: JsonOption = False) -> None:
    """Show the log and its ledgers: how many entries and bytes, since when, sealed or open."""
    from penstock.operations.log.tools import summarize

    with told(as_json=json):
        log = summarize(path)
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
            times = (_time(info.first_ms), _time(info.last_ms)) if info.sealed else ("", "")
            size = human_bytes(view.frames_end)
            table.add_row(str(info.id), info.state, str(info.epoch), f"{view.entries:,}", size, *times, _where(info))
        console.print(table)
        stores = Counter(view.info.offload.url for view in log.ledgers if view.info.offload is not None)
        for url, count in sorted(stores.items()):
            console.print(f"[dim]offloaded: {count:,} ledgers at {escape(url)}[/]", soft_wrap=True)


@app.command("inspect")
def inspect(
    path: PathArgument,
    *,
    ledger: Annotated[int | None, typer.Option(help="Only this ledger.")] = None,
    cursor: Annotated[str | None, typer.Option(help="The record log of this cursor instead.")] = None,
    bad: Annotated[bool, typer.Option("--bad", help="Only what does not match its checksum.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many frames.")] = None,
    json: JsonOption = False,
) -> None:
    """Show frames as they stand in the files: offset, length, entry, epoch, and whether the checksums match.

    Goes on after bytes that are no frame. Exit code 1 where one of the shown frames is bad.
    """
    from itertools import islice

    from penstock.operations.log.tools import inspect_frames

    faults = 0
    file = None
    with told(as_json=json):
        for where, line in islice(inspect_frames(path, ledger, cursor, bad), limit):
            faults += bool(line.fault)
            header = line.header
            if json:
                fields = header._asdict() if header else {}
                print_json(
                    {
                        "file": getattr(where, "name", where),
                        "offset": line.offset,
                        "bytes": line.bytes,
                        "ok": not line.fault,
                    }
                    | ({"fault": line.fault} if line.fault else {})
                    | fields
                )
                continue
            if where != file:
                file = where
                console.print(f"[bold]{where}[/]", soft_wrap=True)
                console.print("      OFFSET      BYTES      ENTRY  EPOCH       DATA  CHANGES  WRITTEN", soft_wrap=True)
            columns = (
                f"{header.entry_id:>10} {header.epoch:>6} {header.data_len:>10} {header.changes_len:>8}  {_time(header.wall_ms)}"
                if header
                else f"{'':>36}  {'':19}"
            )
            mark = f"[bold red]✗ {escape(line.fault)}[/]" if line.fault else "[green]✓[/]"
            console.print(f"{line.offset:>12} {line.bytes:>10} {columns}  {mark}", soft_wrap=True)
    raise typer.Exit(EXIT_DIFFERENT if faults else 0)


@app.command("verify")
def verify(path: PathArgument, json: JsonOption = False) -> None:
    """Check every byte: ledgers, their indexes and offloaded copies, the end file, cursors, a flow's progress.

    Exit code 1: something is wrong.

    Changes nothing, and works on a log that another process owns.
    """
    from penstock.operations.log.verify import verify_log

    with told(as_json=json):
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
        copies = f" · {check.offloaded:,} offloaded copies" if check.offloaded else ""
        console.print(
            f"{mark} {check.directory}: {check.ledgers:,} ledgers with {check.entries:,} entries{copies} · {check.record_logs:,} record "
            f"logs with {check.records:,} records · {human_bytes(check.bytes)} · {len(check.faults):,} faults",
            soft_wrap=True,
        )
        for fault in check.faults:
            console.print(
                f"  [red]{escape(str(fault.path))} at byte {fault.offset}: {escape(fault.what)}[/]", soft_wrap=True
            )
        if check.faults:
            console.print("  [dim]→ nothing was changed; check the disk and restore these files from a copy[/]")
    raise typer.Exit(0 if check.sound else EXIT_DIFFERENT)


@app.command("cursors")
def cursors(path: PathArgument, json: JsonOption = False) -> None:
    """List the durable cursors: where each stands, what it has still to read, how many holes it keeps."""
    from penstock.operations.log.tools import list_cursors

    with told(as_json=json):
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
                }
                for line in lines
            ]
        )
    else:
        table = table_of("CURSOR", "MARK-DELETE", "BACKLOG", "BYTES", "HOLES", "LAST ACTIVE", "NOTE")
        for line in lines:
            note = "is being deleted" if line.deleting else line.fault
            known = line.backlog_entries is not None
            table.add_row(
                escape(line.name),
                str(line.mark_delete),
                f"{line.backlog_entries:,}" if known else "?",
                human_bytes(line.backlog_bytes or 0) if known else "?",
                f"{line.holes:,}" if known else "?",
                _time(line.active_ms),
                escape(note),
            )
        console.print(table)
    raise typer.Exit(EXIT_DIFFERENT if any(line.fault for line in lines) else 0)


@app.command("trim")
def trim(
    path: PathArgument,
    keep_seconds: Annotated[float | None, typer.Option(min=0, help="Keep ledgers that are younger.")] = None,
    keep_bytes: Annotated[int | None, typer.Option(min=0, help="Keep so many bytes of the newest ledgers.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove whole ledgers that every cursor and pin has passed and that are not to be kept.

    Takes ownership while it runs (not with --dry-run): a running flow trims by itself. The newest ledger always stays.
    """
    from penstock.operations.log.tools import trim_log

    with told(as_json=json):
        gone = trim_log(path, keep_seconds, keep_bytes, dry_run=dry_run)
        what = "would go" if dry_run else "removed"
        text = f"{len(gone)} ledgers {what}{': ' if gone else ''}{', '.join(map(str, gone))}"
        say(json, {"ledgers": gone, "dry_run": dry_run}, text)


@app.command("offload")
def offload(
    path: PathArgument,
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
    from penstock.operations.log.tools import offload_log

    screen = OffloadScreen(as_json=json)
    with told(as_json=json), screen:
        done = offload_log(
            path, to, keep_bytes=keep_bytes, lag_seconds=lag_seconds, dry_run=dry_run, progress=screen.update
        )
    would = "would be " if dry_run else ""
    text = (
        f"{len(done.copied)} ledgers {would}copied to {to}{_numbers(done.copied)}\n"
        f"{len(done.moved)} local files {'would go' if dry_run else 'removed'}{_numbers(done.moved)}"
    )
    say(json, {"copied": done.copied, "moved": done.moved, "dry_run": dry_run}, text)


def _numbers(ledgers: list[int]) -> str:
    return f": {', '.join(map(str, ledgers))}" if ledgers else ""


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


@contextmanager
def told(*, as_json: bool) -> Iterator[None]:
    """Errors as everywhere; and a reader that went away (`| head`) or Ctrl-C is no error."""
    with errors_told(as_json=as_json):
        try:
            yield
        except BrokenPipeError:
            sys.stderr.close()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def say(as_json: bool, document: dict[str, Any], text: str) -> None:
    if as_json:
        print_json(document)
    else:
        typer.echo(text)


def _show_entry(entry: Entry, *, as_json: bool, raw: bool) -> None:
    from penstock.operations.log.tools import entry_document

    if raw:
        sys.stdout.buffer.write(entry.data)
        sys.stdout.buffer.flush()
    elif as_json:
        print_json(entry_document(entry))
    else:
        data = bytes(entry.data[:_PREVIEW_BYTES])
        more = "…" if len(entry.data) > _PREVIEW_BYTES else ""
        text = data.decode("utf-8", "backslashreplace")
        shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
        changes = f" +{len(entry.changes)} changes" if entry.changes else ""
        typer.echo(f"{entry.position!s:>12}  {_time(entry.wall_ms)}  {len(entry.data):>8} B{changes}  {shown}{more}")


def table_of(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        number = heading in ("ENTRIES", "BYTES", "BACKLOG", "HOLES", "KEYS")
        name = heading in ("STORE", "CURSOR")  # cut short it names nothing: other columns give way
        table.add_column(heading, justify="right" if number else "left", overflow="fold" if name else "ellipsis",
                         min_width=23 if name else len(heading))  # fmt: skip
    return table


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if wall_ms else "never"
