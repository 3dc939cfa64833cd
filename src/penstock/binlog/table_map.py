"""TABLE_MAP: the layout of the rows that follow it, with everything that its optional metadata says.

Column types are always there; names, signedness, charsets, elements and the key only as far as the server's
`binlog_row_metadata` says. What is absent is None, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.binlog.bodies import Bytes, FormatDescription, event_body
from penstock.binlog.byte_reader import ByteReader
from penstock.binlog.errors import BadEvent
from penstock.binlog.table_metadata import read_metadata
from penstock.binlog.types import ColumnType, EventType

_COLUMNS_MAX = 4096  # the server's own limit

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


@dataclass(frozen=True, slots=True)
class MapColumn:
    """One column. `type` is the real type: the server logs ENUM and SET as STRING.

    `length` depends on the type: the most bytes of a STRING or VARCHAR, the bytes of an ENUM or SET value, the bytes of
    a BLOB's length, the bits of a BIT, the digits of a second of a temporal type, the precision of a NEWDECIMAL.
    `form`: a type of MariaDB that the server logs as BINARY: `inet4`, `inet6`, `uuid`. No table map says so, nor the
    digits of a second of the temporal types before MySQL 5.6: schema/from_table_map.py adds both.
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
    form: str | None = None


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


def parse_table_map(event: Bytes, fde: FormatDescription) -> TableMap:
    """The layout of one table. Raises `BadEvent` for anything cut or impossible."""
    if len(event) < 5 or event[4] != EventType.TABLE_MAP:
        raise BadEvent("a TABLE_MAP was expected here", event_type=event[4] if len(event) > 4 else None)
    width = fde.table_id_bytes
    reader = ByteReader(bytes(event_body(event, fde, least=width + 2)), "the table map")
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
    metas = ByteReader(reader.take(reader.packed()), "the column metadata")
    shapes = [_shape(kind, metas) for kind in types]
    nulls = reader.take((count + 7) // 8)
    said = read_metadata(reader, [kind for kind, _, _ in shapes], fde)
    columns = tuple(
        MapColumn(
            kind,
            length,
            scale,
            bool(nulls[i >> 3] >> (i & 7) & 1),
            said.unsigned.get(i),
            said.charsets.get(i),
            said.names[i] if said.names else None,
            said.elements.get(i),
            i in said.key,
            said.visible[i] if i < len(said.visible) else True,
        )
        for i, (kind, length, scale) in enumerate(shapes)
    )
    return TableMap(
        table_id,
        flags,
        schema,
        table,
        columns,
        has_names=bool(said.names) or not columns,
        has_signedness=said.has_signedness,
        has_primary_key=bool(said.key),
        primary_key_prefixes={ordinal: prefix for ordinal, prefix in said.key.items() if prefix},
    )


def _shape(kind: int, metas: ByteReader) -> tuple[int, int, int]:
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
