"""What can be wrong with the bytes of a binlog. Nothing of an event that raises one of these is ever used."""

from __future__ import annotations

from typing import Self

from penstock.binlog.types import EVENT_BYTES_MAX, EventType
from penstock.errors import BadInput, NotSupported


class BadEvent(BadInput):
    """Bytes that are not an event of the type they claim, or end before the event does. Names file, offset and
    type."""

    def __init__(
        self, message: str, *, offset: int = 0, event_type: int | None = None, file: str = "", hint: str = ""
    ) -> None:
        where = f"{file}: " if file else ""
        super().__init__(f"{where}{_where(offset, event_type)}: {message}", hint=hint)
        self.problem = message
        self.offset = offset
        self.event_type = event_type
        self.file = file
        # Where whoever raises it decoded many events together: which of them it is, and its transaction's file and start.
        self.index = -1
        self.transaction = ("", 0)

    def at(self, offset: int, *, event_type: int | None = None, file: str = "") -> Self:
        """The same error at another place: what finds it knows a buffer, and its caller the file."""
        kind = self.event_type if event_type is None else event_type
        return type(self)(self.problem, offset=offset, event_type=kind, file=file or self.file, hint=self.hint)


class BadChecksum(BadEvent):
    """The event's CRC32 does not match its bytes."""


def not_supported(message: str, *, offset: int = 0, event_type: int | None = None, hint: str = "") -> NotSupported:
    """The error for an event that this version does not read. `hint` names the server setting that avoids it."""
    return NotSupported(f"{_where(offset, event_type)}: {message}", hint=hint)


def _where(offset: int, event_type: int | None) -> str:
    kind = f" ({type_name(event_type)})" if event_type is not None else ""
    return f"binlog event at offset {offset}{kind}"


def type_name(event_type: int) -> str:
    """`WRITE_ROWS_V2`, or `type 200` for a number that no type has."""
    try:
        return EventType(event_type).name
    except ValueError:
        return f"type {event_type}"


def too_large_event(header: bytes | bytearray | memoryview, file: str, offset: int) -> BadEvent:
    """The error for an event whose header names more than `EVENT_BYTES_MAX` bytes. Nothing more of it is read."""
    size = int.from_bytes(header[9:13], "little")
    return BadEvent(
        f"{size} bytes are more than an event may have (EVENT_BYTES_MAX, {EVENT_BYTES_MAX})",
        offset=offset,
        event_type=header[4],
        file=file,
        hint="the binlog is damaged here, or it is not a binlog",
    )
