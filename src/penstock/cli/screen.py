"""What people see on the terminal: lines and tables, in which nothing but Penstock itself can paint.

Names of tables, values of rows, messages of servers and paths are written by others. Rich would read markup in them, and
a terminal obeys control characters. So everything that is printed consists of a template, which is a constant of this
program and may hold markup, and of values, which go through `shown`. (In `--json` the escapes are those of JSON, so a
program reads exactly what was there.)
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.observe.logging import redact
from penstock.observe.shown import shown
from penstock.process import EXIT_NO_READER


def end_without_reader() -> NoReturn:
    """Ends the command without a word, because whoever read its output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered still has to go somewhere
    raise SystemExit(EXIT_NO_READER)


@contextmanager
def outliving_terminal() -> Iterator[None]:
    """Inside it, a terminal that was closed is no error: a run that goes on, or drains, has nobody to tell, and that is all."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.close(nothing)


class _Console(Console):
    """Rich's own ends with exit code 1, which means "the answer is no" here."""

    def on_broken_pipe(self) -> None:
        end_without_reader()


console = _Console(highlight=False, emoji=False)
complaints = _Console(stderr=True, highlight=False, emoji=False)

_PLACE = "{}"
_NUMBERS = (
    "ENTRIES", "BYTES", "BODIES", "BACKLOG", "HOLES", "KEYS", "ROWS", "FILES", "TABLES", "EVENTS",
    "INSERTS", "UPDATES", "DELETES", "RECORDS", "OFFSET",
    "SIZE", "ROWS/S",
)  # fmt: skip
_NAMES = ("STORE", "CURSOR", "SEGMENT", "GLOB")
_NEVER_CUT = (*_NAMES, "NOTE")
_NAME_WIDTH_MIN = 23


def line(template: str, *values: object) -> Text:
    """The template, read as markup, with each `{}` replaced by a value, which is never read as markup."""
    drawn = Text.from_markup(template, emoji=False)
    if drawn.plain.count(_PLACE) != len(values):
        raise ValueError(f"{template!r} has {drawn.plain.count(_PLACE)} places for {len(values)} values")
    whole, at = Text(), 0
    for value in values:
        place = drawn.plain.index(_PLACE, at)
        whole.append_text(drawn[at:place])
        whole.append(shown(value), drawn.get_style_at_offset(console, place))
        at = place + len(_PLACE)
    return whole.append_text(drawn[at:])


def say(template: str, *values: object) -> None:
    """Prints a `line` on standard output."""
    console.print(line(template, *values), soft_wrap=True)


def tell(template: str, *values: object) -> None:
    """Prints a `line` on standard error: how far a command is, which is none of its results."""
    complaints.print(line(template, *values), soft_wrap=True)


def complain(message: str, hint: str = "") -> None:
    """Prints what went wrong, and what to do next, on standard error, without secrets: a library may have written it."""
    complaints.print(line("[bold red]✗[/] {}", redact(message)), soft_wrap=True)
    if hint:
        complaints.print(line("  [dim]→ {}[/]", redact(hint)), soft_wrap=True)


def warn(message: str) -> None:
    """Prints what a user should know though the command goes on, on standard error."""
    complaints.print(line("[yellow]![/] {}", message), soft_wrap=True)


def table_of(*headings: str) -> Table:
    """An empty table. Numbers are aligned to the right; names are never cut short, because other columns give way."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        name = heading in _NAMES
        table.add_column(
            heading,
            justify="right" if heading in _NUMBERS else "left",
            overflow="fold" if heading in _NEVER_CUT else "ellipsis",
            min_width=_NAME_WIDTH_MIN if name else len(heading),
        )
    return table


def add_row(table: Table, *cells: object) -> None:
    """Adds a row; no cell is read as markup."""
    table.add_row(*(Text(shown(cell)) for cell in cells))


def say_table(table: Table) -> None:
    console.print(table)
