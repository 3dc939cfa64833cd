"""GTID_TAGGED (42): the GTID of a transaction whose `gtid_next` has a tag, in MySQL's serialization format.

A message is its version, its size, the last field that a reader must know, then the fields, each after its number. A
number has as many ones in its lowest bits as bytes follow its first, then a zero, then its bits, little-endian.
"""

from __future__ import annotations

import uuid

from penstock.binlog.errors import BadEvent
from penstock.binlog.types import EventType

FLAGS, SID, NUMBER, TAG, LAST_COMMITTED, SEQUENCE, IMMEDIATE_COMMIT, ORIGINAL_COMMIT = range(8)
_KNOWN_MAX = 11  # later fields are numbers: length of the transaction, versions of the servers, group commit
_SIGNED = frozenset({NUMBER, LAST_COMMITTED, SEQUENCE})
_TAG_BYTES_MAX = 32


class _Message:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def number(self) -> int:
        if self.at >= len(self.data):
            raise BadEvent("cut in its fields", event_type=EventType.GTID_TAGGED)
        first = self.data[self.at]
        more = 0
        while more < 8 and first >> more & 1:
            more += 1
        raw = self.data[self.at : self.at + 1 + more]
        if len(raw) < 1 + more:
            raise BadEvent("cut in its fields", event_type=EventType.GTID_TAGGED)
        self.at += 1 + more
        return int.from_bytes(raw, "little") >> (more + 1 if more < 8 else 8)

    def signed(self) -> int:
        value = self.number()
        return -((value >> 1) + 1) if value & 1 else value >> 1

    def take(self, count: int) -> bytes:
        value = self.data[self.at : self.at + count]
        if len(value) < count:
            raise BadEvent("cut in its fields", event_type=EventType.GTID_TAGGED)
        self.at += count
        return value


def tagged_fields(body: bytes) -> dict[int, int | str | uuid.UUID]:
    """The fields of the event's body, by their numbers. Raises `BadEvent` for what is not such a message."""
    message = _Message(body)
    version, size, last_needed = message.number(), message.number(), message.number()
    if version != 1 or size > len(body):
        raise BadEvent(
            f"a message of version {version} and {size} bytes is not known", event_type=EventType.GTID_TAGGED
        )
    fields: dict[int, int | str | uuid.UUID] = {}
    while message.at < size:
        field = message.number()
        if field > _KNOWN_MAX:
            if field <= last_needed:
                raise BadEvent(f"a field {field} that must be known", event_type=EventType.GTID_TAGGED)
            break
        if field == SID:
            fields[field] = uuid.UUID(bytes=bytes(message.number() & 0xFF for _ in range(16)))
        elif field == TAG:
            length = message.number()
            if length > _TAG_BYTES_MAX:
                raise BadEvent(f"a tag of {length} bytes", event_type=EventType.GTID_TAGGED)
            fields[field] = message.take(length).decode("ascii", "replace")
        else:
            fields[field] = message.signed() if field in _SIGNED else message.number()
    if not {SID, NUMBER} <= fields.keys():
        raise BadEvent("without a GTID", event_type=EventType.GTID_TAGGED)
    return fields
