"""Dates and times that are written as texts, in the physical form of the column that they are compared with."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from penstock.rules.expressions.types import Kind

_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_MOMENT = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?)?")
_TIME = re.compile(r"(-?)(\d{1,3}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

SHAPES = {
    Kind.DATE: "'2026-11-17'",
    Kind.DATETIME: "'2026-11-17 08:30:00'",
    Kind.TIMESTAMP: "'2026-11-17 08:30:00', in UTC",
    Kind.TIME: "'08:30:00'",
}


def physical(text: str, kind: Kind) -> int | None:
    """The text as a number of the physical form; None if it is no value of this kind."""
    if kind is Kind.TIME:
        match = _TIME.fullmatch(text)
        if match is None or int(match[3]) > 59 or int(match[4]) > 59:
            return None
        micros = ((int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])) * 1_000_000 + _micros(match[5])
        return -micros if match[1] else micros
    match = (_DATE if kind is Kind.DATE else _MOMENT).fullmatch(text)
    if match is None:
        return None
    numbers = [int(part or 0) for part in match.groups()[:6]]
    try:
        if kind is Kind.DATE:
            day = date(numbers[0], numbers[1], numbers[2])
            return day.year << 9 | day.month << 5 | day.day
        moment = datetime(*numbers, microsecond=_micros(match[7]), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        return None
    if kind is Kind.TIMESTAMP:
        return (moment - _EPOCH) // timedelta(microseconds=1)
    months = moment.year * 13 + moment.month
    seconds = moment.day << 17 | moment.hour << 12 | moment.minute << 6 | moment.second
    return (months << 22 | seconds) << 24 | moment.microsecond


def _micros(digits: str | None) -> int:
    return int((digits or "0").ljust(6, "0"))
