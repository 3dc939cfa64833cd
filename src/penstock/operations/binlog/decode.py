"""`penstock binlog decode`: files → lines, or tables in files. Whatever happens, what was written is whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from penstock.entries.decode import EntryGroup
from penstock.errors import BadInput, PenstockError
from penstock.files import Buffer
from penstock.files.private import open_private
from penstock.operations.binlog.given_files import GivenFiles
from penstock.operations.binlog.jsonl import JsonLines
from penstock.operations.binlog.reading import FileReader, Seen
from penstock.operations.binlog.schema_options import tables_from_sql, tables_of_server
from penstock.operations.binlog.table_files import TableFiles, prepare_directory
from penstock.operations.binlog.table_filter import TableFilter
from penstock.operations.binlog.tables import Tables
from penstock.schema.model import TableSchema

Format = Literal["jsonl", "parquet", "arrow"]
EVENTS_FILE = "_events.jsonl"


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    format: Format = "jsonl"
    tables: tuple[str, ...] = ()  # patterns, schema.table; none: all
    out: Path | None = None
    schemas: tuple[str, ...] = ()  # FILE or DATABASE=FILE
    server: Path | None = None


class _Output(Protocol):
    def write(self, group: EntryGroup) -> None: ...

    def tell(self, seen: Seen) -> None: ...

    def end_early(self, why: str) -> None: ...


def decode_files(
    paths: Sequence[Path],
    options: DecodeOptions,
    write: Callable[[Buffer], object],
    *,
    note: Callable[[str], None] = lambda text: None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    may_end: Callable[[], None] = lambda: None,
) -> None:
    """Decodes the files. `write` takes the lines where no `out` is given; `progress`: bytes read, and in all.

    `may_end` is called wherever what was written is whole: it raises `KeyboardInterrupt` if the user wants an end.
    """
    wanted = TableFilter(options.tables) if options.tables else None
    files = GivenFiles(paths)
    given: list[TableSchema] = tables_of_server(options.server) if options.server else []
    for one in options.schemas:
        given += tables_from_sql(one)
    reader = FileReader(
        files,
        given,
        wanted=wanted or (lambda schema, table: True),
        note=note,
        progress=lambda done: progress(done, files.bytes_total),
    )
    with _output(options, wanted, write) as output:
        for item in reader.read():
            may_end()
            if isinstance(item, Seen):
                output.tell(item)
            else:
                output.write(item)
    for pattern in sorted(wanted.unused) if wanted is not None else ():
        note(f"--table {pattern}: no row and no DDL in the files is of such a table")


@contextlib.contextmanager
def _output(
    options: DecodeOptions, wanted: Callable[[str, str], bool] | None, write: Callable[[Buffer], object]
) -> Iterator[_Output]:
    """Where the changes go. After an error, or an end that the user asked for, it says so and is closed properly."""
    with contextlib.ExitStack() as stack:
        output = _opened(options, wanted, write, stack)
        try:
            yield output
        except PenstockError as error:
            output.end_early(error.message)
            raise
        except KeyboardInterrupt:
            if options.out is not None:  # who reads standard output has gone, or is told by the exit code
                output.end_early("interrupted")
            raise


def _opened(
    options: DecodeOptions,
    wanted: Callable[[str, str], bool] | None,
    write: Callable[[Buffer], object],
    stack: contextlib.ExitStack,
) -> _Output:
    out = options.out
    if out is not None and not out.parent.is_dir():
        raise BadInput(f"--out {out}: there is no directory {out.parent}", hint=f"mkdir -p {out.parent}")
    if options.format == "jsonl":
        if out is not None:
            if out.exists():
                raise BadInput(f"--out {out} is there already", hint="name a file that is not there yet")
            write = stack.enter_context(open_private(out, "xb")).write
        return JsonLines(write, wanted)
    if out is None:
        raise BadInput(f"--format {options.format} needs --out DIRECTORY", hint="a file for each table goes there")
    prepare_directory(out)
    lines = stack.enter_context(open_private(out / EVENTS_FILE, "xb"))
    tables = Tables(TableFiles(out, options.format), lines.write, wanted)
    stack.callback(tables.close)
    return tables
