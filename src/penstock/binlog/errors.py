"""What can be wrong with the bytes of a binlog. Nothing of an event that raises one of these is ever used."""

from __future__ import annotations

from penstock.errors import BadInput, NotSupported


class BadEvent(BadInput):
    """Bytes that are not an event of the type they claim, or end before the event does. Names offset and type."""

    def __init__(self, message: str, *, offset: int = 0, event_type: int | None = None, hint: str = "") -> None:
        super().__init__(f"{_where(offset, event_type)}: {message}", hint=hint)
        self.offset = offset
        self.event_type = event_type


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
    from penstock.binlog.types import EventType

    try:
        return EventType(event_type).name
    except ValueError:
        return f"type {event_type}"
