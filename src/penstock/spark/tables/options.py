"""The options of `format("penstock")`, as a user writes them: checked here, once, with errors that name the option."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from penstock.arguments import check_name
from penstock.errors import BadInput, PenstockError
from penstock.log.position import Position, check_position
from penstock.quantities import parse_size

View = Literal["changes", "current"]
Start = Position | Literal["earliest", "latest"]
ColumnsAt = Position | Literal["newest", "start"]

_KNOWN = ("path", "table", "view", "partitions", "columnsAt", "startingPosition", "maxBytesPerBatch", "cursor")
_BYTES_PER_BATCH = 64 << 20
_PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """`table` as it was written, or None for all tables. `partitions` None: as many as the data asks for."""

    path: str
    table: str | None = None
    view: View = "changes"
    partitions: int | None = None
    start: Start = "earliest"
    batch_bytes_max: int = _BYTES_PER_BATCH
    cursor: str | None = None
    columns_at: ColumnsAt = "newest"

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Options:
        """Raises `BadInput` for a name that is not known, with the nearest one, and for a value that an option does not
        take. Names are compared without regard to case, as Spark does."""
        known = {name.lower(): name for name in _KNOWN}
        values: dict[str, str] = {}
        for written, value in given.items():
            if written.lower() not in known:
                raise _unknown(f"there is no option {written!r}", written, _KNOWN)
            values[known[written.lower()]] = value
        path = values.get("path", "").strip()
        if not path:
            raise BadInput(
                'format("penstock") needs a path: a sink\'s prefix or a state directory',
                hint='.load("s3://bucket/prefix") or .load("penstock-data")',
            )
        view = values.get("view", "changes")
        if view not in get_args(View):
            raise _unknown(f"option view is {view!r}", view, get_args(View))
        table = values.get("table", "").strip() or None
        if view == "current" and table is None:
            raise BadInput(
                "option view is 'current', but no table is named",
                hint='.option("table", "shop.orders"), or view changes',
            )
        return cls(
            path,
            table,
            cast(View, view),
            _count(values),
            _start(values.get("startingPosition", "earliest")),
            _size(values.get("maxBytesPerBatch", str(_BYTES_PER_BATCH))),
            _cursor(values.get("cursor")),
            _columns_at(values.get("columnsAt", "newest")),
        )


def _unknown(what: str, written: str, known: tuple[str, ...]) -> BadInput:
    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(written.lower(), list(lower), n=1, cutoff=0.5)
    nearest = f"did you mean {lower[near[0]]!r}? " if near else ""
    return BadInput(what, hint=f"{nearest}known: {', '.join(known)}")


def _count(values: Mapping[str, str]) -> int | None:
    text = values.get("partitions")
    if text is None:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= _PARTITIONS_MAX:
        raise BadInput(f"option partitions is {text!r}", hint=f"a number from 1 to {_PARTITIONS_MAX}")
    return int(text)


def _size(text: str) -> int:
    try:
        size = parse_size(text if not text.isdecimal() else int(text))
    except ValueError as error:
        raise BadInput(f"option maxBytesPerBatch: {error}", hint="such as 64MiB") from None
    if size < 1:
        raise BadInput(f"option maxBytesPerBatch is {text!r}", hint="at least 1; such as 64MiB")
    return size


def _start(text: str) -> Start:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    return _position("startingPosition", text, "earliest, latest")


def _columns_at(text: str) -> ColumnsAt:
    if text == "newest":
        return "newest"
    if text == "start":
        return "start"
    return _position("columnsAt", text, "newest, start")


def _position(option: str, text: str, words: str) -> Position:
    try:
        found = Position.parse(text)
        check_position(option, found)
        return found
    except (ValueError, PenstockError):
        raise BadInput(f"option {option} is {text!r}", hint=f"{words} or a position of the log such as 1:250") from None


def _cursor(name: str | None) -> str | None:
    if name is not None:
        try:
            check_name("option cursor", name)
        except PenstockError as error:
            raise BadInput(f"option cursor is {name!r}: {error.message}", hint=error.hint) from None
    return name
