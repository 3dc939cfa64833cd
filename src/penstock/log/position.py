"""The address of an entry in the log (`Position`), and the order of a single row (`Seq`)."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from penstock.arguments import NUMBER_MAX, check_type, shown
from penstock.errors import BadInput

_SEQ = struct.Struct(">QQII")
SEQ_BYTES = _SEQ.size


class Position(NamedTuple):
    """The address of an entry; ordered. `(L, -1)` is before the first entry of ledger L, and after the ledger before it."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @classmethod
    def parse(cls, text: str) -> Position:
        ledger, entry = text.split(":")
        return cls(int(ledger), int(entry))


class Seq(NamedTuple):
    """The order of a row: its entry, the ordinal of its event in the entry, and the ordinal of the row in the event."""

    ledger_id: int
    entry_id: int
    event: int
    row: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}:{self.event}:{self.row}"

    @property
    def position(self) -> Position:
        return Position(self.ledger_id, self.entry_id)

    def to_bytes(self) -> bytes:
        """24 bytes, big-endian: comparing the bytes compares the rows."""
        return _SEQ.pack(*self)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Seq:
        return cls(*_SEQ.unpack(raw))

    @classmethod
    def parse(cls, text: str) -> Seq:
        return cls(*(int(part) for part in text.split(":")))


class Span(NamedTuple):
    """Entries from `first` to `last`, both included, all in one ledger."""

    first: Position
    last: Position


def check_position(what: str, value: object) -> None:
    """Raises `BadInput` unless it is a `Position` whose numbers may be those of an entry, or of the place before it."""
    if type(value) is not Position or not _is_number(value[0], 0) or not _is_number(value[1], -1):
        raise BadInput(f"{what} is {shown(value)}", hint="a Position, as append and read give them")


def checked_positions(values: Iterable[Position]) -> list[Position]:
    """The positions as they are now. Raises `BadInput` for anything else."""
    check_type("positions", values, Iterable)
    found = list(values)
    for value in found:
        check_position("a position", value)
    return found


def _is_number(value: object, least: int) -> bool:
    return type(value) is int and least <= value <= NUMBER_MAX
