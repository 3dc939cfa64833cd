"""What can be wrong with binlog bytes. Nothing of a bad event is ever used."""

from __future__ import annotations

from penstock.errors import BadInput, NotSupported


class BadEvent(BadInput):
    """An event that does not have the form its type requires; names where it stands and its type."""

    def __init__(self, message: str, *, offset: int = 0, event_type: int | None = None, hint: str = "") -> None:
        where = f"binlog event at offset {offset}"
        if event_type is not None:
            where += f" ({type_name(event_type)})"
        super().__init__(f"{where}: {message}", hint=hint)
        self.offset = offset
        self.event_type = event_type


class TruncatedEvent(BadEvent):
    """The bytes end before the event does."""


class BadChecksum(BadEvent):
    """The event's CRC32 does not match its bytes."""


class EventNotSupported(NotSupported):
    """An event that this version does not read, with the server setting that avoids it."""

    def __init__(self, message: str, *, offset: int = 0, event_type: int | None = None, hint: str = "") -> None:
        where = f"binlog event at offset {offset}"
        if event_type is not None:
            where += f" ({type_name(event_type)})"
        super().__init__(f"{where}: {message}", hint=hint)
        self.offset = offset
        self.event_type = event_type


def type_name(event_type: int) -> str:
    """`WRITE_ROWS_V2`, or `type 200` where nobody knows it."""
    from penstock.binlog.types import EventType

    try:
        return EventType(event_type).name
    except ValueError:
        return f"type {event_type}"
