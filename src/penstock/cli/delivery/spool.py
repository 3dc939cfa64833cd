"""`penstock spool inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import JsonOption
from penstock.cli.output import counted, end_quietly, human_bytes, print_json
from penstock.cli.screen import add_row, say, say_table, table_of
from penstock.process import EXIT_DIFFERENT, EXIT_OK

if TYPE_CHECKING:
    from penstock.delivery.spool.segment_check import SegmentSeen
    from penstock.operations.delivery.spool import SpoolReport, SpoolSeen

app = typer.Typer(
    help="Look into the spool: rows that are encoded and not yet at a sink.\n\n"
    "What does not fit in memory lies in STATE_DIR/run/spool/SINK/ as segments. They are scratch: a start deletes what an "
    "earlier process left, and reads those rows from the log again.",
    no_args_is_help=True,
)
_TABLES_SHOWN_MAX = 20  # on one screen


@app.callback()
def _group() -> None:
    """Keeps `inspect` a command of its own: with one command alone, typer would leave its name out."""


def inspect(
    state_dir: Annotated[Path, typer.Argument(metavar="STATE_DIR", help="The state directory of a flow.")],
    segment: Annotated[
        str | None,
        typer.Option("--segment", metavar="NAME", help="Look at this one alone, and list each of its records."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read every segment of the spool: headers, records, checksums, for which tables, and what is damaged.

    Works while the flow runs and after it was killed; locks nothing and
    changes nothing. A segment's name is SHARD-NUMBER-PROCESS.seg.

    "left": the process that wrote it is gone, and the next `penstock run`
    deletes it unread. An unfinished record at the end of a file is how a
    write in progress looks, or a kill during one: it is no damage.

    Damage costs no rows: they are in the log. A table that meets it stops
    in this run, and the next one reads its rows again.

    Exit code 0 all checksums are right, 1 something is damaged.
    """
    from penstock.operations.delivery.spool import inspect_spool

    with end_quietly(as_json=json):
        report = inspect_spool(state_dir, segment=segment)
    code = EXIT_DIFFERENT if report.damaged else EXIT_OK
    if json:
        print_json(_document(report, code))
    else:
        _show(report, with_records=segment is not None)
    raise typer.Exit(code)


def _document(report: SpoolReport, code: int) -> dict[str, Any]:
    return {
        "exit_code": code,
        "state_dir": str(report.state_dir),
        "running": report.incarnation,
        "spools": [
            {
                "sink": spool.changefeed,
                "directory": str(spool.directory),
                "account": spool.account,
                "other_files": spool.other_files,
                "segments": [_segment(report, spool, one) for one in spool.segments],
                "records": [
                    {
                        "offset": one.offset,
                        "bytes": one.length,
                        "dispatcher": one.dispatcher,
                        "table": spool.table_of(one.dispatcher) or None,
                        "checksum": f"{one.checksum:08x}",
                        "damage": one.damage or None,
                    }
                    for one in spool.records
                ],
            }
            for spool in report.spools
        ],
    }


def _segment(report: SpoolReport, spool: SpoolSeen, one: SegmentSeen) -> dict[str, Any]:
    return {
        "name": str(one.path.name),
        "shard": one.name.shard,
        "number": one.name.segment,
        "incarnation": one.incarnation or None,
        "left": report.is_left(one),
        "bytes": one.bytes,
        "records": one.records,
        "payload_bytes": one.payload_bytes,
        "unfinished_bytes": one.unfinished_bytes,
        "dispatchers": [
            {"dispatcher": key, "table": spool.table_of(key) or None, "records": share.records, "bytes": share.bytes}
            for key, share in one.dispatchers.items()
        ],
        "damage": [{"offset": each.offset, "bytes": each.bytes, "reason": each.reason} for each in one.damage],
    }


def _show(report: SpoolReport, *, with_records: bool) -> None:
    process = f"delivery {report.incarnation[:8]} runs" if report.incarnation else "no delivery process answers"
    say("[bold]SPOOL[/]  {}  {}", report.state_dir, process)
    for spool in report.spools:
        _show_spool(report, spool)
        if with_records:
            _show_records(spool)
    if not any(spool.segments for spool in report.spools):
        say("no segments: nothing is spilled to disk")
    if report.damaged:
        say(
            "[bold red]✗[/] {}: no row is lost, the log has them; look at the disk",
            counted(report.damaged, "damaged place"),
        )


def _show_spool(report: SpoolReport, spool: SpoolSeen) -> None:
    held = ""
    if spool.account is not None:
        items = f"{spool.account['memory_items']:,} payloads in memory, {spool.account['disk_items']:,} on disk"
        held = f"  holds {human_bytes(spool.account['bytes'])} ({items})"
        held += "  wakes are suppressed" if spool.account["suppressed"] else ""
    size = human_bytes(sum(one.bytes for one in spool.segments))
    say("[bold]{}[/]  {}, {}{}", spool.changefeed, counted(len(spool.segments), "segment"), size, held)
    if spool.account is not None and spool.account["alarm"]:
        say("[yellow]![/] nothing can be spilled: {}", spool.account["alarm"])
    if spool.segments:
        table = table_of("SEGMENT", "RECORDS", "BYTES", "TABLES", "NOTE")
        for one in spool.segments:
            add_row(
                table,
                one.path.name,
                f"{one.records:,}",
                human_bytes(one.bytes),
                len(one.dispatchers),
                _note(report, one),
            )
        say_table(table)
    _show_tables(spool)
    for one in spool.segments:
        for damage in one.damage:
            words = (one.path.name, damage.offset, counted(damage.bytes, "byte"), damage.reason)
            say("[bold red]✗[/] {} at {}, {}: {}", *words)
    if spool.other_files:
        say("[dim]no segments, left alone: {}[/]", ", ".join(spool.other_files[:_TABLES_SHOWN_MAX]))


def _note(report: SpoolReport, one: SegmentSeen) -> str:
    notes = ["left"] if report.is_left(one) else []
    if one.unfinished_bytes:
        notes.append(f"{counted(one.unfinished_bytes, 'byte')} of an unfinished record")
    if one.damage:
        notes.append("damaged")
    return ", ".join(notes)


def _show_tables(spool: SpoolSeen) -> None:
    shares: dict[str, tuple[int, int]] = {}
    for one in spool.segments:
        for key, share in one.dispatchers.items():
            records, size = shares.get(key, (0, 0))
            shares[key] = (records + share.records, size + share.bytes)
    if not shares:
        return
    table = table_of("TABLE", "RECORDS", "BYTES", "DISPATCHER")
    largest = sorted(shares.items(), key=lambda pair: -pair[1][1])
    for key, (records, size) in largest[:_TABLES_SHOWN_MAX]:
        add_row(table, spool.table_of(key) or "?", f"{records:,}", human_bytes(size), key)
    say_table(table)
    if len(largest) > _TABLES_SHOWN_MAX:
        say("[dim]and {} more (--json has them)[/]", len(largest) - _TABLES_SHOWN_MAX)


def _show_records(spool: SpoolSeen) -> None:
    table = table_of("OFFSET", "BYTES", "CHECKSUM", "TABLE", "NOTE")
    for one in spool.records:
        owner = spool.table_of(one.dispatcher) or one.dispatcher
        add_row(table, one.offset, f"{one.length:,}", f"{one.checksum:08x}", owner, one.damage)
    say_table(table)
