"""The footer of a Parquet file, as far as joining needs it: Thrift's compact protocol, read and written without a schema.

Whatever a writer put into a footer stays in it; only the offsets, the numbers of rows and the ordinals change.
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift has the numbers of the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.errors import BadInput
from penstock.files import Buffer

MAGIC = b"PAR1"
TAIL_BYTES = 8  # length of the footer, magic

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_INTEGERS = (_I16, _I32, _I64)
_DEPTH_MAX = 32
_ORDINAL_MAX = (1 << 15) - 1

# Fields by number.
_FILE_SCHEMA, _FILE_ROWS, _FILE_GROUPS = 2, 3, 4
_GROUP_COLUMNS, _GROUP_OFFSET, _GROUP_ORDINAL = 1, 5, 7
_CHUNK_OFFSET, _CHUNK_METADATA, _CHUNK_OFFSET_INDEX, _CHUNK_COLUMN_INDEX = 2, 3, 4, 6
_CHUNK_OFFSETS = (_CHUNK_OFFSET, _CHUNK_OFFSET_INDEX, _CHUNK_COLUMN_INDEX)
_COLUMN_OFFSETS = (9, 10, 11, 14)  # data pages, index page, dictionary page, bloom filter


class Value(NamedTuple):
    kind: int
    value: Any


Struct = dict[int, Value]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self, depth: int = 0) -> Struct:
        if depth > _DEPTH_MAX:
            raise ValueError("nested too deeply")
        found: Struct = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            found[field] = Value(kind, kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth))
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            return self._take(8)
        raise ValueError(f"a value of kind {kind}")

    def _list(self, depth: int) -> Value:
        head = self._byte()
        size = self._varint() if head >> 4 == 15 else head >> 4
        if size > len(self._data):
            raise ValueError("a list is longer than the footer")
        return Value(head & 15, [self._value(head & 15, depth + 1) for _ in range(size)])

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError("it ends early")
        self._at += size
        return taken

    def _byte(self) -> int:
        return self._take(1)[0]

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)


def parse_footer(file: Buffer) -> tuple[Struct, int]:
    """The footer, and where it begins. Raises `BadInput` for what is no Parquet file."""
    view = memoryview(file).cast("B")
    length = int.from_bytes(view[-TAIL_BYTES:-4], "little") if len(view) >= TAIL_BYTES + 4 else -1
    start = len(view) - TAIL_BYTES - length
    if length < 0 or start < len(MAGIC) or bytes(view[:4]) != MAGIC or bytes(view[-4:]) != MAGIC:
        raise BadInput("a payload is no Parquet file")
    try:
        return _Reader(bytes(view[start : start + length])).struct(), start
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the footer of a Parquet payload cannot be read: {error}") from None


def write_footer(footer: Struct) -> bytes:
    """The end of a file: footer, its length, magic."""
    written = b"".join(_struct(footer))
    return written + struct.pack("<I", len(written)) + MAGIC


def append_groups(footer: Struct, other: Struct, moved: int) -> None:
    """Adds the row groups of `other`, whose bytes lie `moved` further in the new file. Raises `BadInput` where the columns
    are others."""
    if footer[_FILE_SCHEMA] != other[_FILE_SCHEMA]:
        raise BadInput("payloads of different table versions cannot share a Parquet file")
    groups = footer[_FILE_GROUPS].value.value
    for group in other[_FILE_GROUPS].value.value:
        move_group(group, moved, len(groups))
        groups.append(group)
    footer[_FILE_ROWS] = Value(_I64, footer[_FILE_ROWS].value + other[_FILE_ROWS].value)


def move_group(group: Struct, moved: int, ordinal: int) -> None:
    _move(group, (_GROUP_OFFSET,), moved)
    if _GROUP_ORDINAL in group:
        if ordinal > _ORDINAL_MAX:
            del group[_GROUP_ORDINAL]
        else:
            group[_GROUP_ORDINAL] = Value(_I16, ordinal)
    for chunk in group[_GROUP_COLUMNS].value.value:
        _move(chunk, _CHUNK_OFFSETS, moved)
        _move(chunk[_CHUNK_METADATA].value, _COLUMN_OFFSETS, moved)


def _move(fields: Struct, offsets: tuple[int, ...], moved: int) -> None:
    for field in offsets:
        if field in fields and fields[field].value > 0:  # 0: the writer left it out
            fields[field] = Value(fields[field].kind, fields[field].value + moved)


def _struct(fields: Struct) -> Iterator[bytes]:
    last = 0
    for field, (kind, value) in sorted(fields.items()):
        step = field - last
        yield bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _zigzag(field)
        last = field
        if kind not in (_TRUE, _FALSE):
            yield from _written(kind, value)
    yield b"\0"


def _written(kind: int, value: Any) -> Iterator[bytes]:
    if kind in _INTEGERS:
        yield _zigzag(value)
    elif kind == _BINARY:
        yield _varint(len(value))
        yield value
    elif kind in (_LIST, _SET):
        size = len(value.value)
        yield bytes([size << 4 | value.kind]) if size < 15 else bytes([0xF0 | value.kind]) + _varint(size)
        for each in value.value:
            yield from _written(value.kind, each)
    elif kind == _STRUCT:
        yield from _struct(value)
    elif kind == _DOUBLE:
        yield value
    else:
        yield bytes([value])


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)
