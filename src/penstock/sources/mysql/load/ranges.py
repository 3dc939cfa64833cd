"""Ranges of a table's key with about as many rows each, so that a large table is read over several connections.

The first and the last key say between which values its rows lie; a value in the middle of the fullest range cuts that in
two, and so on. How many rows a range has the server guesses by looking into the index at its two ends (EXPLAIN), without
reading it. Where a bound lies is no promise: ranges that begin where others end have each key once, whatever the bounds
are, as long as these are in the server's order; that is asked where it is not plain.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pymysql.connections import Connection

from penstock.schema.model import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, Column, TableSchema
from penstock.schema.quoting import quoted_name
from penstock.sources.load import WHOLE, KeyRange, TableLoad
from penstock.sources.mysql.connection import rows
from penstock.sources.mysql.load.columns import ColumnForm
from penstock.sources.mysql.load.condition import guessed_rows
from penstock.sources.mysql.load.keys import indexed, key_ordinals, where

_LOOKS_A_PART = 6  # questions to the server for each range that is wanted, at most
_FOLDED = b"0123456789abcdefghijklmnopqrstuvwxyz"  # in this order in every collation
_BINARY = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TEXT_PLACES = 8
_PLAIN_CHARSETS = frozenset({"ascii", "latin1", "latin2", "latin5", "latin7", "utf8", "utf8mb3", "utf8mb4"})
_NUMBERS = INTEGER_TYPES | {"decimal", "float", "double", "bit"}
_MOMENTS = frozenset({"date", "datetime", "timestamp"})
_DAWN = datetime.datetime(1, 1, 1)  # before it is only the zero date, which is no date


@dataclass(frozen=True, slots=True)
class _Line:
    """The values of one column between two of them, as numbers. `literal`: a number's value. `plain`: their order is that of
    the numbers."""

    low: int
    high: int
    literal: Callable[[int], str]
    plain: bool = True


@dataclass(frozen=True, slots=True)
class _Stretch:
    """What lies between two numbers of a line, and about how many rows that is."""

    low: int
    high: int
    count: int


def find_ranges(  # noqa: PLR0917
    connection: Connection[Any],
    table: TableSchema,
    forms: Sequence[ColumnForm],
    load: TableLoad,
    order: Sequence[str],
    parts: int,
) -> tuple[KeyRange, ...]:
    """`order`: the type and the collation of each of the key's columns, as in `TableLoad`."""
    key = key_ordinals(table, load.key)
    ends = [_end(connection, table, forms, key, way) for way in ("ASC", "DESC")]
    if not all(ends):
        return WHOLE
    first, last = ends
    depth = next((i for i, (a, b) in enumerate(zip(first, last, strict=True)) if a != b), None)
    if depth is None:
        return WHOLE
    ordinal = key[depth]
    line = _line(table.columns[ordinal], first[depth], last[depth], order[depth])
    if line is None or line.high - line.low < parts:
        return WHOLE
    common = tuple(forms[key[i]].literal(first[i]) for i in range(depth))
    compared = [forms[i].compared for i in key]

    def count(low: int, high: int) -> int:
        part = KeyRange((*common, line.literal(low)), (*common, line.literal(high)))
        plan = rows(connection, f"EXPLAIN SELECT 1 FROM {indexed(table)}{where(compared, part)}")
        return guessed_rows(plan)

    bounds = [line.literal(number) for number in _bounds(line, count, parts)]
    if not line.plain:
        bounds = _in_order(connection, bounds, order[depth].rpartition(" ")[2])
    keys: list[tuple[str, ...]] = [(), *((*common, bound) for bound in bounds), ()]
    return tuple(KeyRange(after, until) for after, until in pairwise(keys))


def _bounds(line: _Line, count: Callable[[int, int], int], parts: int) -> list[int]:
    """The numbers at which the line is cut, in order."""
    stretches = [_Stretch(line.low, line.high, count(line.low, line.high))]
    for _ in range(_LOOKS_A_PART * parts):
        widest = max(stretches, key=lambda one: one.count)
        middle = (widest.low + widest.high) // 2
        if middle in (widest.low, widest.high) or not widest.count:
            break
        if len(stretches) >= parts and widest.count * parts <= 2 * sum(one.count for one in stretches):
            break
        stretches.remove(widest)
        left = _Stretch(widest.low, middle, count(widest.low, middle))
        right = _Stretch(middle, widest.high, count(middle, widest.high))
        stretches += [left, right]
    merged: list[int] = []
    full = sum(one.count for one in stretches) / parts
    have = 0
    for stretch in sorted(stretches, key=lambda one: one.low):  # small ones in a row are one range
        if merged and have and have + stretch.count > 1.25 * full:
            have = 0
        if not have:
            merged.append(stretch.low)
        have += stretch.count
    return merged[1:]


def _in_order(connection: Connection[Any], bounds: Sequence[str], collation: str) -> list[str]:
    """The bounds that are beyond each one before them, by the server's word."""
    found: list[str] = []
    for bound in bounds:
        if not found:
            found.append(bound)
            continue
        name = quoted_name(collation)
        later = rows(connection, f"SELECT ({bound} COLLATE {name}) > ({found[-1]} COLLATE {name})")[0][0]
        if int(later):
            found.append(bound)
    return found


def _end(
    connection: Connection[Any],
    table: TableSchema,
    forms: Sequence[ColumnForm],
    key: Sequence[int],
    way: str,
) -> list[bytes]:
    """The first or the last key, as texts; empty where the table is."""
    selected = ", ".join(f"CAST({forms[i].expression} AS BINARY)" for i in key)
    order = ", ".join(f"{quoted_name(table.columns[i].name)} {way}" for i in key)
    found = rows(connection, f"SELECT {selected} FROM {indexed(table)} ORDER BY {order} LIMIT 1")
    return [bytes(value) for value in found[0]] if found else []


def _line(column: Column, first: bytes, last: bytes, order: str) -> _Line | None:
    """None for a type of which no value lies in the middle of two."""
    base = column.base_type
    if base in _NUMBERS:
        return _Line(int(Decimal(first.decode())), int(Decimal(last.decode())) + 1, str)
    if base in _MOMENTS:
        return _moments(first, last)
    if base in BINARY_TYPES:
        return _texts(first, last, bytes(range(256)), lambda raw: f"X'{raw.hex()}'", plain=True)
    if base in CHARACTER_TYPES and column.charset in _PLAIN_CHARSETS:
        alphabet = _BINARY if order.endswith("_bin") else _FOLDED
        return _texts(first, last, alphabet, lambda raw: f"_{column.charset} X'{raw.hex()}'", plain=False)
    return None


def _moments(first: bytes, last: bytes) -> _Line | None:
    try:
        high = datetime.datetime.fromisoformat(last.decode())
    except ValueError:
        return None
    try:
        low = datetime.datetime.fromisoformat(first.decode())
    except ValueError:
        low = _DAWN

    def literal(number: int) -> str:
        return f"'{(_DAWN + datetime.timedelta(seconds=number)).isoformat(' ')}'"

    return _Line(int((low - _DAWN).total_seconds()), int((high - _DAWN).total_seconds()), literal)


def _texts(first: bytes, last: bytes, alphabet: bytes, literal: Callable[[bytes], str], *, plain: bool) -> _Line | None:
    """Texts of a few characters after what both begin with, as numbers whose digits are the characters."""
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    prefix = first[:same]
    if not plain and not prefix.isascii():
        return None

    def number(text: bytes, beyond: int) -> int:
        found = 0
        for place in range(_TEXT_PLACES):
            character = text[same + place] if same + place < len(text) else -1
            digit = sum(1 for one in alphabet if one <= character)
            found = found * len(alphabet) + max(0, min(digit - 1 + beyond, len(alphabet) - 1))
        return found

    def text(value: int) -> bytes:
        digits = []
        for _ in range(_TEXT_PLACES):
            value, digit = divmod(value, len(alphabet))
            digits.append(alphabet[digit])
        return prefix + bytes(reversed(digits))

    low, high = number(first, 0), number(last, 1)
    return _Line(low, high, lambda value: literal(text(value)), plain) if low < high else None
