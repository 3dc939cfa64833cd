"""`penstock binlog`: looks into binlog files, without a log, and without a server unless it is asked for one."""

from __future__ import annotations

import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from penstock.binlog.errors import BadEvent
from penstock.cli.options import JsonOption
from penstock.cli.output import counted, fail, human_bytes, print_json, translate_errors
from penstock.cli.screen import add_row, complaints, end_without_reader, say, say_table, table_of, warn
from penstock.errors import BadInput, NotSupported, PenstockError
from penstock.files import Buffer
from penstock.observe.shown import shown_json
from penstock.process import EXIT_SOURCE
from penstock.sources.source import SourceError

if TYPE_CHECKING:
    from penstock.operations.binlog.stats import Stats

app = typer.Typer(
    help="Look into binlog files: the changes in them as JSON lines or tables, and figures about them.",
    no_args_is_help=True,
)

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILES",
        help="Binlog files, in the order in which the server wrote them.",
        exists=True,
        dir_okay=False,
    ),
]
PROGRESS_BYTES_MIN = 32 << 20  # smaller files are done before a bar could be read


@app.callback()
def _root() -> None:
    pass


@app.command("decode")
def decode(  # noqa: PLR0917
    files: FilesArgument,
    format: Annotated[
        Literal["jsonl", "parquet", "arrow"],
        typer.Option(help="jsonl: one JSON object a line. parquet, arrow: files of typed columns for each table."),
    ] = "jsonl",
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="SCHEMA.TABLE", help="Only these tables; * and ? stand for anything. May be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="For jsonl a new file (default: standard output); for parquet and arrow an empty or new directory."
        ),
    ] = None,
    schema: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DATABASE=]FILE",
            help="SQL with the CREATE TABLEs of the tables as they were at the start of the first file, as mysqldump "
            "--no-data writes it. May be repeated.",
        ),
    ] = None,
    server: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG", help="A configuration file whose source is a server: its tables, as they are now."
        ),
    ] = None,
    events: Annotated[
        bool,
        typer.Option("--events", help="One line for each event, as it stands in the file, instead of the changes."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the changes in binlog files: what was committed, once, in the order of the commits.

    A line is one change: op, schema, table, position, gtid, timestamp, before, after. DDL, logged statements, XA outcomes
    and rollbacks are lines of their own; rows that were rolled back are not shown. Binary values are always
    {"base64": "…"}. docs/formats/decode-jsonl.md is the contract.

    Columns have their names where a CREATE TABLE in the files, --schema, --server or the binlog's own metadata
    (binlog_row_metadata=FULL) tells them; else they are @1, @2, ….

    Examples:

      penstock binlog decode bin.000007 | jq 'select(.op == "delete")'

      penstock binlog decode bin.0000* --table 'shop.*' --schema shop=shop.sql --out shop.jsonl

      penstock binlog decode bin.0000* --format parquet --out tables/

    Where a file cannot be read on, the error names the place (exit code 3). Everything that was committed before it has
    been written, and a last line, "incomplete", says that more is missing. So it is after Ctrl-C with --out.
    """
    with _errors(as_json=json):
        if events:
            _refuse_with_events(format=format != "jsonl", table=table, out=out, schema=schema, server=server)
            _dump(files)
            return
        from penstock.operations.binlog.decode import DecodeOptions, decode_files

        options = DecodeOptions(format, tuple(table or ()), out, tuple(schema or ()), server)
        with _bar(files) as progress, _lines() as write, _calm_end(wait=out is not None) as may_end:
            decode_files(files, options, write, note=warn, progress=progress, may_end=may_end)


@app.command("stats")
def stats(files: FilesArgument, json: JsonOption = False) -> None:
    """Count what is in binlog files: events by type, transactions, rows and bytes of each table, the largest transactions.

    Rows are counted, not decoded, so it is faster than decode. Where a file cannot be read on, the figures before that
    place are shown, then the error.

    Example:

      penstock binlog stats bin.0000*
    """
    from penstock.operations.binlog.stats import StatsReader

    with _errors(as_json=json):
        with _bar(files) as progress:
            reader = StatsReader(files, progress=progress)
            failed: PenstockError | None = None
            try:
                reader.read()
            except PenstockError as error:
                failed = error
        if json:
            print_json(reader.stats.to_json())
        else:
            _say_stats(reader.stats)
        if failed is not None:
            raise failed


@contextmanager
def _errors(*, as_json: bool) -> Iterator[None]:
    """A file that is damaged, or lacks something, is a source that refuses."""
    with translate_errors(as_json=as_json):
        try:
            yield
        except (SourceError, BadEvent, NotSupported) as error:
            fail(error, as_json=as_json, exit_code=EXIT_SOURCE)


def _refuse_with_events(**options: object) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise BadInput(f"--events shows the file as it is: --{given[0]} does not go with it")


def _dump(files: list[Path]) -> None:
    from penstock.binlog.dump import dump_events

    for path in files:
        if not path.is_file() or not path.stat().st_size:
            raise BadInput(f"{path} is not a binlog file: it is empty, or a pipe")
        with path.open("rb") as file:  # mapped: the file need not fit into memory
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        try:
            for event in dump_events(data):
                print_json({"file": path.name, **event})
        except BadEvent as error:
            raise error.at(error.offset, file=path.name) from None
        except NotSupported as error:
            raise NotSupported(f"{path.name}: {error.message}", hint=error.hint) from None


@contextmanager
def _calm_end(*, wait: bool) -> Iterator[Callable[[], None]]:
    """With `wait`, the first Ctrl-C or SIGTERM waits until `may_end`, which it gives, is called: where all files are whole.
    Inside of Arrow and of compiled code it would leave a file without its end, or be lost. The second one acts at once."""
    asked: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def note(number: int, frame: object) -> None:
        asked.append(number)
        for each in signals:
            signal.signal(each, before[each])

    def may_end() -> None:
        if asked:
            raise KeyboardInterrupt

    if not wait or threading.current_thread() is not threading.main_thread():
        yield may_end
        return
    for number in signals:
        signal.signal(number, note)
    try:
        yield may_end
    finally:
        for number in signals:
            signal.signal(number, before[number])
        if signal.SIGTERM in asked:
            os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _lines() -> Iterator[Callable[[Buffer], None]]:
    """Writes lines to standard output: as they are, but for a terminal, which would obey some characters."""
    raw = getattr(sys.stdout, "buffer", None)

    def write(data: Buffer) -> None:
        if not len(data):
            return
        if raw is None or sys.stdout.isatty():
            text = bytes(data).decode("utf-8", "replace")
            sys.stdout.write("".join(shown_json(line) + "\n" for line in text.split("\n") if line))
        else:
            raw.write(data)

    try:
        yield write
        sys.stdout.flush()
    except BrokenPipeError:
        end_without_reader()


@contextmanager
def _bar(files: list[Path]) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error, for long files on a terminal."""
    total = sum(path.stat().st_size for path in files)
    if not complaints.is_terminal or total < PROGRESS_BYTES_MIN:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=complaints, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, total: bar.update(task, completed=done)


def _say_stats(stats: Stats) -> None:
    files = counted(stats.files, "file")
    say("[bold]{}[/], {}, {}", files, human_bytes(stats.bytes), counted(stats.events.total(), "event"))
    others = "".join(f", {count:,} {ending}" for ending, count in sorted(stats.endings.items()))
    rows = sum(one.rows for one in stats.tables.values())
    say(
        "{} committed{}; {} DDL, {}",
        counted(stats.committed, "transaction"),
        others,
        stats.ddl,
        counted(stats.statements, "statement"),
    )
    if stats.tables:
        shown = table_of("TABLE", "ROWS", "INSERTS", "UPDATES", "DELETES", "EVENTS", "BYTES")
        for one in sorted(stats.tables.values(), key=lambda one: -one.bytes):
            numbers = (one.rows, one.insert, one.update, one.delete, one.events)
            add_row(shown, f"{one.schema}.{one.table}", *(f"{n:,}" for n in numbers), human_bytes(one.bytes))
        say("\n[bold]TABLES[/]  {}", counted(rows, "row"))
        say_table(shown)
    if stats.largest:
        shown = table_of("POSITION", "ROWS", "EVENTS", "BYTES", "GTID")
        for large in stats.largest:
            add_row(shown, large.position, f"{large.rows:,}", f"{large.events:,}", human_bytes(large.bytes), large.gtid)
        say("\n[bold]LARGEST TRANSACTIONS[/]")
        say_table(shown)
    if stats.events:
        shown = table_of("EVENT TYPE", "EVENTS")
        for kind, count in stats.events.most_common():
            add_row(shown, kind, f"{count:,}")
        say("")
        say_table(shown)
