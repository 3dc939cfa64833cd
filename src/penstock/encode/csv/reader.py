"""Lines of CSV read back, for verify and tests. Quoted and bare fields are told apart: only a bare null is NULL."""

from __future__ import annotations

import re
from collections.abc import Iterator

from penstock.encode.settings import TERMINATORS, CsvOptions
from penstock.errors import BadInput

_ESCAPES = {"n": "\n", "r": "\r"}


def read_lines(text: str, options: CsvOptions) -> Iterator[list[str | None]]:
    """The fields of each line; a missing value is None. Raises `BadInput` for text that is no such CSV."""
    terminator = TERMINATORS[options.terminator]
    field, place, line = _field(options), 0, list[str | None]()
    while place < len(text):
        match = field.match(text, place)
        if match is None:
            raise BadInput(f"at character {place}: {text[place : place + 40]!r} is no field of this CSV")
        line.append(_value(match, options))
        place = match.end()
        if match["end"] == terminator:
            yield line
            line = []
    if line:
        raise BadInput("the last line has no end")


def _field(options: CsvOptions) -> re.Pattern[str]:
    delimiter, terminator = re.escape(options.delimiter), re.escape(TERMINATORS[options.terminator])
    end = f"(?P<end>{delimiter}|{terminator})"
    if options.quote:
        quote = re.escape(options.quote)
        quoted = f"{quote}(?P<quoted>(?:[^{quote}]|{quote}{quote})*+){quote}"
        return re.compile(f"(?:{quoted}|(?P<bare>(?:(?!{delimiter}|{terminator}|{quote}).)*+)){end}", re.DOTALL)
    return re.compile(rf"(?P<bare>(?:\\.|(?!{delimiter}|{terminator})[^\\])*+){end}", re.DOTALL)


def _value(match: re.Match[str], options: CsvOptions) -> str | None:
    if options.quote and match["quoted"] is not None:
        return match["quoted"].replace(options.quote * 2, options.quote)
    bare = match["bare"]
    if bare == options.null_string:
        return None
    return bare if options.quote else re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), bare, flags=re.DOTALL)
