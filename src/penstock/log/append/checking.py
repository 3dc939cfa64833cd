"""What may be appended, checked on the caller's thread: the writer thread serves everybody, so it meets no bad argument.

Data is one buffer or several; changes are `StateChange`s, or bytes that were encoded already. What passes here can be
encoded, unless its owner takes a buffer away while it waits.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import BadInput, PenstockError
from penstock.files import Buffer
from penstock.log.frames.format import (
    BODY_BYTES_MAX,
    CHANGE,
    MESSAGES_MAX,
    BadFrame,
    Changes,
    StateChange,
    decode_changes,
)

_BUFFERS = (bytes, bytearray, memoryview)
_U64_MAX = (1 << 64) - 1
_U32_MAX = (1 << 32) - 1


def checked_append(data: Any, changes: Any, *, encoded: bool = False) -> tuple[tuple[Buffer, ...], Changes, int]:
    """(the buffers of one entry, its changes, how many bytes both are). Raises `BadInput`.

    `encoded`: the changes are bytes that `encode_changes` made, and are not looked at.
    """
    buffers, size = checked_buffers(data)
    if encoded and isinstance(changes, bytes):
        more = len(changes)
    else:
        changes, more = checked_changes(changes)
    if size + more > BODY_BYTES_MAX:
        raise BadInput(f"an entry of {size + more} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
    return buffers, changes, size + more


def checked_buffers(data: Any) -> tuple[tuple[Buffer, ...], int]:
    """(the buffers of one entry, how many bytes they hold). Raises `BadInput`."""
    buffers = (data,) if isinstance(data, _BUFFERS) else checked_sequence(data, "the data of an entry")
    return buffers, checked_size(buffers)


def checked_sequence(values: Any, what: str) -> tuple[Any, ...]:
    """The values as they are now, whatever their owner does with the sequence later."""
    if not isinstance(values, list | tuple):
        raise BadInput(f"{what} cannot be of type {type(values).__name__}", hint="bytes, or a list or tuple of bytes")
    return tuple(values)


def checked_size(buffers: tuple[Any, ...]) -> int:
    """How many bytes the buffers hold. Raises `BadInput` for what is no buffer of contiguous bytes."""
    if set(map(type, buffers)) == {bytes}:
        return sum(map(len, buffers))
    size = 0
    for buffer in buffers:
        if not isinstance(buffer, _BUFFERS):
            raise BadInput(f"a buffer of an entry cannot be of type {type(buffer).__name__}", hint="bytes are needed")
        try:
            contiguous = not isinstance(buffer, memoryview) or (buffer.c_contiguous and buffer.nbytes == len(buffer))
        except (ValueError, TypeError) as error:  # a view that was released, or one without dimensions
            raise BadInput(f"a buffer of an entry cannot be read: {error}") from error
        if not contiguous:
            raise BadInput("a buffer of an entry must be contiguous bytes")
        size += len(buffer)
    return size


def checked_changes(changes: Any) -> tuple[Changes, int]:
    """(the changes, how many bytes they are once encoded). Raises `BadInput`."""
    if isinstance(changes, bytes):
        try:
            decode_changes(changes)
        except (BadFrame, PenstockError) as error:
            raise BadInput(f"these bytes are no encoded state changes: {error}") from error
        return changes, len(changes)
    if not isinstance(changes, list | tuple):
        raise BadInput(f"state changes cannot be of type {type(changes).__name__}", hint="a list of StateChange")
    return tuple(changes), sum(map(_checked_change, changes))


def _checked_change(change: Any) -> int:
    if not isinstance(change, StateChange):
        raise BadInput(f"{type(change).__name__} is no state change", hint="a StateChange")
    namespace, key, value, delta, timestamp = change
    _check_unsigned("namespace", namespace, _U64_MAX)
    _check_unsigned("delta", delta, _U32_MAX)
    if timestamp is not None:
        _check_unsigned("timestamp", timestamp, _U64_MAX)
    if not isinstance(key, bytes) or not (value is None or isinstance(value, bytes)):
        raise BadInput("keys and values of state changes are bytes")
    if len(key) + len(value or b"") > BODY_BYTES_MAX:
        raise BadInput("a state change is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
    return CHANGE.size + len(key) + len(value or b"")


def _check_unsigned(what: str, value: Any, highest: int) -> None:
    if type(value) is not int or not 0 <= value <= highest:
        raise BadInput(f"the {what} of a state change is {value!r}", hint=f"a number from 0 to {highest}")


def checked_messages(messages: Any) -> int:
    """How many messages an entry stands for. Raises `BadInput`."""
    if type(messages) is not int or not 1 <= messages <= MESSAGES_MAX:
        raise BadInput(f"an entry cannot stand for {messages!r} messages", hint=f"a number from 1 to {MESSAGES_MAX}")
    return messages


def checked_pair(record: Any) -> tuple[Any, Any]:
    """Data and changes of a record that is given as a pair. Raises `BadInput`."""
    if not isinstance(record, tuple) or len(record) != 2:
        raise BadInput(f"{type(record).__name__} is no record", hint="a Record, or a pair of data and changes")
    return record


def unwritable(reason: Exception) -> BadInput:
    failure = BadInput(f"the entry cannot be written: {reason}", hint="a buffer must not change while its append waits")
    failure.__cause__ = reason
    return failure
