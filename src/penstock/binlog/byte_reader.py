"""Takes the fields of a TABLE_MAP off its front, one after the other."""

from __future__ import annotations

from penstock.binlog.errors import BadEvent
from penstock.binlog.types import EventType


class ByteReader:
    """Takes bytes off the front. Raises `BadEvent` rather than read beyond the end."""

    def __init__(self, data: bytes, what: str) -> None:
        self.data = data
        self.at = 0
        self.what = what

    def __bool__(self) -> bool:
        return self.at < len(self.data)

    def take(self, count: int) -> bytes:
        end = self.at + count
        if count < 0 or end > len(self.data):
            raise BadEvent(f"cut in {self.what}", event_type=EventType.TABLE_MAP)
        value = self.data[self.at : end]
        self.at = end
        return value

    def integer(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def packed(self) -> int:
        """A length-encoded integer."""
        first = self.integer(1)
        if first < 251:
            return first
        if first in (251, 255):
            raise BadEvent(f"bad length in {self.what}", event_type=EventType.TABLE_MAP)
        return self.integer({252: 2, 253: 3, 254: 8}[first])

    def sized(self) -> bytes:
        """Bytes after their length."""
        return self.take(self.packed())
