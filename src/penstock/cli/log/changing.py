"""`penstock log create`, `append`, `trim`, `offload` and `skip`: the commands that take ownership of the log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer
from rich.live import Live
from rich.text import Text

from penstock.cli.options import JsonOption, LogPathArgument
from penstock.cli.output import end_quietly, human_bytes, print_json, print_result
from penstock.cli.screen import console, say

if TYPE_CHECKING:
    from penstock.log import OffloadProgress

_READ_BYTES = 1 << 20  # of standard input at once, at most


def create(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A directory that is not there yet, or is empty.")],
    json: JsonOption = False,
) -> None:
    """Make a new, empty log. Its list of ledgers goes into metadata.sqlite beside it."""
    from penstock.operations.log.changing import create_log

    with end_quietly(as_json=json):
        uuid = create_log(path)
        document = {"created": str(path), "uuid": str(uuid)}
        print_result(document, "✓ {}: a new, empty log ({})", path, uuid, as_json=json)


def append(
    path: LogPathArgument,
    entries: Annotated[
        list[str] | None, typer.Argument(help="Entries. Without any, each line of standard input is one.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="All of standard input is one entry.")] = False,
    json: JsonOption = False,
) -> None:
    """Append entries, and print their positions once they are on the disk.

    Lines are appended as they come. Takes ownership while it runs, so it is refused (exit code 75) while another process has
    the log.
    """
    from penstock.operations.log.changing import append_batches

    with end_quietly(as_json=json):
        for first, last in append_batches(path, _given(entries, whole=whole)):
            print_result(
                {"first": str(first), "last": str(last)},
                "{}",
                f"{first}" if first == last else f"{first} … {last}",
                as_json=json,
            )


def _given(entries: list[str] | None, *, whole: bool) -> Iterator[list[bytes]]:
    if entries:
        yield [entry.encode() for entry in entries]
    elif whole:
        yield [sys.stdin.buffer.read()]
    else:
        yield from _lines_as_they_come(sys.stdin.buffer)


def _lines_as_they_come(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The whole lines of each part that is there. A writer may be slow, and Ctrl-C may come before its next line."""
    begun: list[bytes] = []  # of the line whose end is still to come
    while part := stream.read1(_READ_BYTES):  # type: ignore[attr-defined]
        *lines, rest = part.split(b"\n")
        if lines:
            lines[0] = b"".join((*begun, lines[0]))
            begun = []
            yield [line.rstrip(b"\r") for line in lines]
        if rest:
            begun.append(rest)
    if begun:
        yield [b"".join(begun).rstrip(b"\r")]


def trim(
    path: LogPathArgument,
    keep_seconds: Annotated[float | None, typer.Option(min=0, help="Keep ledgers that are younger.")] = None,
    keep_bytes: Annotated[int | None, typer.Option(min=0, help="Keep so many bytes of the newest ledgers.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: JsonOption = False,
) -> None:
    """Remove whole ledgers that every cursor and pin has passed and that are not to be kept.

    Takes ownership while it runs (not with --dry-run): a running flow trims by itself. A log without
    cursors and pins keeps what the options say, and no more.
    """
    from penstock.operations.log.changing import trim_log

    with end_quietly(as_json=json):
        gone = trim_log(path, keep_seconds, keep_bytes, dry_run=dry_run)
        what = "would go" if dry_run else "removed"
        document = {"ledgers": gone, "dry_run": dry_run}
        print_result(document, "{} ledgers {}{}", len(gone), what, _numbers(gone), as_json=json)


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
    from penstock.operations.log.changing import offload_log

    screen = OffloadScreen(as_json=json)
    with end_quietly(as_json=json), screen:
        done = offload_log(
            path, to, keep_bytes=keep_bytes, lag_seconds=lag_seconds, dry_run=dry_run, progress=screen.update
        )
    print_result(
        {"copied": done.copied, "moved": done.moved, "dry_run": dry_run},
        "{} ledgers {}copied to {}{}\n{} local files {}{}",
        *(len(done.copied), "would be " if dry_run else "", to, _numbers(done.copied)),
        *(len(done.moved), "would go" if dry_run else "removed", _numbers(done.moved)),
        as_json=json,
    )


def skip(
    path: LogPathArgument,
    ledger: Annotated[int, typer.Argument(metavar="LEDGER", help="The number of the damaged ledger.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without it, only say what would be lost.")] = False,
    json: JsonOption = False,
) -> None:
    """Give up the entries of a ledger that cannot be read any more, for good: readers and cursors pass over them.

    The last resort, where no copy of the ledger's file is left to restore. Also for a log that cannot be opened. An entry
    that can be read is never skipped. With --yes it is refused (exit code 75) while a process has the log.
    """
    from penstock.operations.log.changing import skip_ledger

    with end_quietly(as_json=json):
        lost = skip_ledger(path, ledger, dry_run=not yes)
        ranges = [(str(first), str(last)) for first, last in lost.ranges]
        places = ", ".join(first if first == last else f"{first} … {last}" for first, last in ranges)
        lines = [
            f"{'skipped' if yes else 'would be lost'}: {lost.entries:,} entries, about {human_bytes(lost.bytes)}: {places}",
            f"ledger {lost.ledger_id} keeps {lost.entries_kept:,} entries that can be read",
        ]
        lines += [f"cursor {name} had not acked {count:,} of them" for name, count in sorted(lost.cursors.items())]
        if not yes:
            lines.append("nothing was changed; restore the file from a copy if there is one, else say --yes")
        document = {**lost._asdict(), "ranges": ranges, "skipped": yes}
        if json:
            print_json(document)
        else:
            for text in lines:
                say("{}", text)


def _numbers(ledgers: list[int]) -> str:
    return f": {', '.join(map(str, ledgers))}" if ledgers else ""


class OffloadScreen:
    """Context manager that displays offload progress."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._live = Live(console=console, transient=True) if not as_json and console.is_terminal else None

    def __enter__(self) -> OffloadScreen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, now: OffloadProgress) -> None:
        if self._json:
            print_json({"event": "progress", **now._asdict()})
        elif self._live:
            size = f"{human_bytes(now.bytes)} of {human_bytes(now.bytes_total)}"
            self._live.update(Text(f"  ledger {now.ledger_id} ({now.ledger} of {now.ledgers}): {size}"))
