"""TABLE_MAP: the layout of the rows that follow it, with everything that its optional metadata says.

Column types are always there; names, signedness, charsets, elements and the key only as far as the server's
`binlog_row_metadata` says. What is absent is None, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.binlog.bodies import Bytes, FormatDescription, event_body
from penstock.binlog.charset import charset_of
from penstock.binlog.errors import BadEvent
from penstock.binlog.types import ColumnType, EventType

_COLUMNS_MAX = 4096  # the server's own limit

_NUMERIC = frozenset(
    {
        ColumnType.DECIMAL,
        ColumnType.TINY,
        ColumnType.SHORT,
        ColumnType.LONG,
        ColumnType.FLOAT,
        ColumnType.DOUBLE,
        ColumnType.LONGLONG,
        ColumnType.INT24,
        ColumnType.YEAR,
        ColumnType.NEWDECIMAL,
    }
)
_CHARACTER = frozenset(
    {
        ColumnType.STRING,
        ColumnType.VAR_STRING,
        ColumnType.VARCHAR,
        ColumnType.BLOB,
        ColumnType.TINY_BLOB,
        ColumnType.MEDIUM_BLOB,
        ColumnType.LONG_BLOB,
        ColumnType.BLOB_COMPRESSED,
        ColumnType.VARCHAR_COMPRESSED,
        ColumnType.VECTOR,  # a blob to the server, so it has a charset too
    }
)
_META_BYTES = {
    ColumnType.FLOAT: 1,
    ColumnType.DOUBLE: 1,
    ColumnType.TIMESTAMP2: 1,
    ColumnType.DATETIME2: 1,
    ColumnType.TIME2: 1,
    ColumnType.TINY_BLOB: 1,
    ColumnType.MEDIUM_BLOB: 1,
    ColumnType.LONG_BLOB: 1,
    ColumnType.BLOB: 1,
    ColumnType.BLOB_COMPRESSED: 1,
    ColumnType.GEOMETRY: 1,
    ColumnType.JSON: 1,
    ColumnType.VECTOR: 1,
    ColumnType.VARCHAR: 2,
    ColumnType.VARCHAR_COMPRESSED: 2,
    ColumnType.BIT: 2,
    ColumnType.NEWDECIMAL: 2,
    ColumnType.STRING: 2,
    ColumnType.VAR_STRING: 2,
    ColumnType.ENUM: 2,
    ColumnType.SET: 2,
}


class _Metadata(IntEnum):
    """Fields of the optional metadata."""

    SIGNEDNESS = 1
    DEFAULT_CHARSET = 2
    COLUMN_CHARSET = 3
    COLUMN_NAME = 4
    SET_ELEMENTS = 5
    ENUM_ELEMENTS = 6
    PRIMARY_KEY = 8
    PRIMARY_KEY_WITH_PREFIX = 9
    ENUM_AND_SET_DEFAULT_CHARSET = 10
    ENUM_AND_SET_COLUMN_CHARSET = 11
    VISIBILITY = 12


@dataclass(frozen=True, slots=True)
class MapColumn:
    """One column. `type` is the real type: the server logs ENUM and SET as STRING.

    `length` depends on the type: the most bytes of a STRING or VARCHAR, the bytes of an ENUM or SET value, the bytes of
    a BLOB's length, the bits of a BIT, the digits of a second of a temporal type, the precision of a NEWDECIMAL.
    """

    type: int
    length: int
    scale: int = 0
    nullable: bool = True
    unsigned: bool | None = None
    charset: str | None = None
    name: str | None = None
    elements: tuple[str, ...] | None = None
    primary_key: bool = False
    visible: bool = True


@dataclass(frozen=True, slots=True)
class TableMap:
    table_id: int
    flags: int
    schema: str
    table: str
    columns: tuple[MapColumn, ...]
    has_names: bool = False
    has_signedness: bool = False
    has_primary_key: bool = False
    primary_key_prefixes: dict[int, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}"


class _ByteReader:
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

    def text(self, charset: str | None = None) -> str:
        raw = self.take(self.packed())
        if charset in (None, "utf8mb4", "utf8mb3", "ascii", "binary"):
            return raw.decode("utf-8", "replace")
        from penstock.binlog.charset import codec_of, single_byte_table

        table = single_byte_table(charset)
        if table is not None:
            return "".join(chr(table[byte]) if table[byte] != 0xFFFFFFFF else "�" for byte in raw)
        return raw.decode(codec_of(charset), "replace")


def parse_table_map(event: Bytes, fde: FormatDescription) -> TableMap:
    """The layout of one table. Raises `BadEvent` for anything cut or impossible."""
    if len(event) < 5 or event[4] != EventType.TABLE_MAP:
        raise BadEvent("a TABLE_MAP was expected here", event_type=event[4] if len(event) > 4 else None)
    width = fde.table_id_bytes
    reader = _ByteReader(bytes(event_body(event, fde, least=width + 2)), "the table map")
    table_id = reader.integer(width)
    flags = reader.integer(2)
    reader.at = max(reader.at, fde.post_header_bytes(EventType.TABLE_MAP))
    schema = reader.take(reader.integer(1)).decode("utf-8", "replace")
    reader.take(1)
    table = reader.take(reader.integer(1)).decode("utf-8", "replace")
    reader.take(1)
    count = reader.packed()
    if count > _COLUMNS_MAX:
        raise BadEvent(f"{count} columns are more than any server has", event_type=EventType.TABLE_MAP)
    types = reader.take(count)
    metas = _ByteReader(reader.take(reader.packed()), "the column metadata")
    shapes = [_shape(kind, metas) for kind in types]
    nulls = reader.take((count + 7) // 8)
    columns = [
        MapColumn(kind, length, scale, bool(nulls[i >> 3] >> (i & 7) & 1))
        for i, (kind, length, scale) in enumerate(shapes)
    ]
    return _with_metadata(TableMap(table_id, flags, schema, table, tuple(columns)), reader)


def _shape(kind: int, metas: _ByteReader) -> tuple[int, int, int]:
    """Real type, length and scale of a column from its meta bytes."""
    meta = metas.take(_META_BYTES.get(ColumnType(kind), 0) if kind in ColumnType._value2member_map_ else 0)
    if kind in (ColumnType.STRING, ColumnType.VAR_STRING, ColumnType.ENUM, ColumnType.SET):
        real, length = meta[0], meta[1]
        if real == 0:
            return ColumnType.STRING, length, 0
        if real & 0x30 != 0x30:  # a length above 255 stores two of its bits, inverted, in the type
            return real | 0x30, length | ((real & 0x30) ^ 0x30) << 4, 0
        return real, length, 0
    if kind == ColumnType.NEWDECIMAL:
        return kind, meta[0], meta[1]
    if kind == ColumnType.BIT:
        return kind, meta[0] + 8 * meta[1], 0
    return kind, int.from_bytes(meta, "little"), 0


def _with_metadata(table: TableMap, reader: _ByteReader) -> TableMap:
    columns = table.columns
    numeric = [i for i, c in enumerate(columns) if c.type in _NUMERIC]
    character = [i for i, c in enumerate(columns) if c.type in _CHARACTER]
    listed = [i for i, c in enumerate(columns) if c.type in (ColumnType.ENUM, ColumnType.SET)]
    unsigned: dict[int, bool] = {}
    charsets: dict[int, str | None] = {}
    names: list[str] = []
    visible: list[bool] = []
    key: dict[int, int] = {}
    element_lists: list[tuple[int, bytes]] = []
    seen: set[int] = set()
    while reader:
        kind = reader.integer(1)
        value = _ByteReader(reader.take(reader.packed()), f"metadata field {kind}")
        seen.add(kind)
        if kind == _Metadata.SIGNEDNESS:
            bits = list(_bits(value.data))
            if len(bits) < len(numeric):
                raise BadEvent("cut in the signedness", event_type=EventType.TABLE_MAP)
            unsigned = dict(zip(numeric, bits, strict=False))
        elif kind in (_Metadata.DEFAULT_CHARSET, _Metadata.ENUM_AND_SET_DEFAULT_CHARSET):
            charsets.update(_default_charsets(value, character if kind == _Metadata.DEFAULT_CHARSET else listed))
        elif kind in (_Metadata.COLUMN_CHARSET, _Metadata.ENUM_AND_SET_COLUMN_CHARSET):
            for i in character if kind == _Metadata.COLUMN_CHARSET else listed:
                charsets[i] = _charset(value.packed())
        elif kind == _Metadata.COLUMN_NAME:
            while value:
                names.append(value.text())
            if len(names) != len(columns):
                raise BadEvent(f"{len(names)} names for {len(columns)} columns", event_type=EventType.TABLE_MAP)
        elif kind in (_Metadata.SET_ELEMENTS, _Metadata.ENUM_ELEMENTS):
            real = ColumnType.SET if kind == _Metadata.SET_ELEMENTS else ColumnType.ENUM
            element_lists.append((real, value.data))
        elif kind == _Metadata.PRIMARY_KEY:
            while value:
                key[value.packed()] = 0
        elif kind == _Metadata.PRIMARY_KEY_WITH_PREFIX:
            while value:
                ordinal = value.packed()
                key[ordinal] = value.packed()
        elif kind == _Metadata.VISIBILITY:
            visible = list(_bits(value.data))
    if any(ordinal >= len(columns) for ordinal in key):
        raise BadEvent("a key column that does not exist", event_type=EventType.TABLE_MAP)
    # The elements of enums and sets come before their charsets, so they are decoded last.
    elements: dict[int, tuple[str, ...]] = {}
    for listed_type, data in element_lists:
        value = _ByteReader(data, "the elements of an enum or set")
        for i in (i for i in listed if columns[i].type == listed_type):
            elements[i] = tuple(value.text(charsets.get(i)) for _ in range(value.packed()))
    return TableMap(
        table.table_id,
        table.flags,
        table.schema,
        table.table,
        tuple(
            MapColumn(
                c.type,
                c.length,
                c.scale,
                c.nullable,
                unsigned.get(i),
                charsets.get(i),
                names[i] if names else None,
                elements.get(i),
                i in key,
                visible[i] if i < len(visible) else True,
            )
            for i, c in enumerate(columns)
        ),
        has_names=bool(names) or not columns,
        has_signedness=_Metadata.SIGNEDNESS in seen or not numeric,
        has_primary_key=bool(key),
        primary_key_prefixes={ordinal: prefix for ordinal, prefix in key.items() if prefix},
    )


def _bits(data: bytes) -> Iterator[bool]:
    for byte in data:
        for shift in range(7, -1, -1):
            yield bool(byte >> shift & 1)


def _charset(collation_id: int) -> str:
    return charset_of(collation_id) or f"of collation {collation_id}"


def _default_charsets(value: _ByteReader, ordinals: list[int]) -> dict[int, str | None]:
    """A default collation, then pairs (index among these columns, collation) for the columns that have another."""
    default = _charset(value.packed())
    found: dict[int, str | None] = dict.fromkeys(ordinals, default)
    while value:
        index = value.packed()
        collation = value.packed()
        if index >= len(ordinals):
            raise BadEvent("a charset for a column that does not exist", event_type=EventType.TABLE_MAP)
        found[ordinals[index]] = _charset(collation)
    return found
