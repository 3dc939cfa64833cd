"""Runs the query of one table over the parts of a batch.

A value that a statement cannot make (a division by zero, a text that is no number) is an error in Spark, never another value.
It is the row's: the table stops in front of it. Spark does not say which row it was, so it is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.rules.sql.rows import Selection
from penstock.spark.failure import failure_from_text
from penstock.spark.sql.session import SparkSql
from penstock.spark.sql.statement import one_line, query
from penstock.spark.sql.worker import ANSWER, ResultFiles, read_error

# Errors of a value, by the names of Spark's exceptions; `SparkException` itself is of the machinery.
_OF_A_VALUE = re.compile(r"org\.apache\.spark\.(?:\w+\.)*Spark\w+Exception: (\[[A-Z0-9_.]+\][^\n]*)")
# What an expression throws in Java's own words, in a task; not what the machinery around it does.
_OF_AN_EXPRESSION = re.compile(
    r"Lost task [^\n]*: (java\.(?:lang|time|time\.\w+|util|util\.regex)\.(?!Interrupted)\w+Exception(?:: [^\n]*)?)\n"
)
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."  # in the stack below it
_PLAIN = re.compile(r"^\[[A-Z0-9_.]+\] ")
_VALUE_ERRORS = (
    "ArithmeticException",
    "ArrayIndexOutOfBoundsException",
    "DateTimeException",
    "IllegalArgumentException",
    "NumberFormatException",
    "SparkNoSuchElementException",
    "SparkRuntimeException",
    "SparkUpgradeException",
    "UnsupportedOperationException",
)

_IMAGES_MAX = 1 << 40  # of a range; far more than there can be

MakeRows = Callable[[Sequence[int], int | None], Any]
"""(the numbers of the parts, how many images of each at most) → what makes their rows in a worker."""


@dataclass(frozen=True, slots=True)
class Made:
    """The file with what Spark made of a part, empty if that is nothing at all; why it stopped, and in front of which image, if it did."""

    path: str
    reason: str = ""
    image: int = 0


class TableQuery:
    """`directory` is of this query alone; what is wrong with the log is raised as it is."""

    def __init__(self, sql: SparkSql, selection: Selection, rows: MakeRows, directory: Path) -> None:
        self._sql = sql
        self._selection = selection
        self._rows = rows
        self._directory = directory

    def run(self, parts: int) -> list[Made]:
        """What Spark makes of each part, in their order."""
        try:
            return self._all(range(parts), None)
        except Exception as error:
            if value_error(error) is None:
                raise
        return [self._one(part) for part in range(parts)]

    def _one(self, part: int) -> Made:
        """A part of a batch in which some row has no value."""
        reason = ""

        def fails(images: int | None) -> bool:
            nonlocal reason
            try:
                self._all([part], images)
            except Exception as error:
                found = value_error(error)
                if found is None:
                    raise
                reason = found
                return True
            return False

        try:
            return self._all([part], None)[0]
        except Exception as error:
            if value_error(error) is None:
                raise
            failure = error
        if fails(0):  # without any row: it is in the statement alone
            return Made("", reason, 0)
        good, bad = 0, 1
        while not fails(bad):
            good, bad = bad, 2 * bad
            if bad > _IMAGES_MAX:
                raise failure  # it does not come again, so it was no row's
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if fails(middle) else (middle, bad)
        fails(bad)  # for the reason of this one, and not of a later one
        return Made(self._all([part], good)[0].path, reason, good)

    def _all(self, parts: Sequence[int], images_max: int | None) -> list[Made]:
        with self._sql.lock:
            rows = self._rows(parts, images_max)
            frame = query(self._sql.session, self._selection, rows, len(parts))
            answers = frame.mapInArrow(ResultFiles(str(self._directory)), ANSWER)
        found = {int(row["part"]): str(row["path"]) for row in answers.collect()}
        if error := read_error(self._directory):
            raise failure_from_text(error)
        if not found:  # a WHERE that is never true: Spark does not even read the rows
            return [Made("") for _ in parts]
        return [Made(found[at]) for at in range(len(parts))]


def value_error(error: Exception) -> str | None:
    """Spark's reason, in one line, where a value cannot be made; None for any other error."""
    text = str(error)
    if match := _OF_A_VALUE.search(text):
        return one_line(match[1])
    if _EXPRESSIONS in text and (match := _OF_AN_EXPRESSION.search(text)):
        return one_line(match[1])
    if type(error).__name__ in _VALUE_ERRORS and _PLAIN.match(text):
        return one_line(text)
    return None
