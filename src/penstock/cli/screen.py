"""What people see on the terminal: lines and tables, in which nothing but Penstock itself can paint.

Names of tables, values of rows, messages of servers and paths are written by others. Rich would read markup in them, and
a terminal obeys control characters: it moves its cursor, turns the order of the letters round, hides what follows. So
everything that is printed consists of a template, which is a constant of this program and may hold markup, and of
values, which go through `shown`. (`--json` has them exactly as they are.)
"""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import NoReturn

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.process import EXIT_NO_READER


def end_without_reader() -> NoReturn:
    """Ends the command without a word, because whoever read its output has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is buffered still has to go somewhere
    raise SystemExit(EXIT_NO_READER)


class _Console(Console):
    """Rich's own ends with exit code 1, which means "the answer is no" here."""

    def on_broken_pipe(self) -> None:
        end_without_reader()


console = _Console(highlight=False, emoji=False)
complaints = _Console(stderr=True, highlight=False, emoji=False)

_PLACE = "{}"
_NUMBERS = ("ENTRIES", "BYTES", "BODIES", "BACKLOG", "HOLES", "KEYS", "ROWS", "FILES", "TABLES")
_NAMES = ("STORE", "CURSOR")
_NEVER_CUT = (*_NAMES, "NOTE")
_NAME_WIDTH_MIN = 23
# Controls, format characters (among them every mark of direction), surrogates, private and unassigned characters, line
# and paragraph separators: what has no shape of its own, or changes that of others.
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(value: object) -> str:
    """The value as text on one line, each character that a terminal would not draw as itself written as an escape:
    `\\n`, `\\x1b`, `\\u202e`."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in _INVISIBLE else c for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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


def complain(message: str, hint: str = "") -> None:
    """Prints what went wrong, and what to do next, on standard error."""
    complaints.print(line("[bold red]✗[/] {}", message), soft_wrap=True)
    if hint:
        complaints.print(line("  [dim]→ {}[/]", hint), soft_wrap=True)


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
