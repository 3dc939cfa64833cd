"""The optional metadata at the end of a TABLE_MAP: what it says of columns, by their ordinals.

Some fields list values for the columns of certain types alone, without saying which these are, and servers differ in
what they count: see `_character_columns` and `_read_signedness`. Where two servers that cannot be told apart would mean
different things, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.binlog.bodies import FormatDescription
from penstock.binlog.byte_reader import ByteReader
from penstock.binlog.charset import CHARSETS, charset_of, decode_exactly
from penstock.binlog.errors import BadEvent
from penstock.binlog.types import ColumnType, EventType, Flavour
from penstock.errors import NotSupported

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
        ColumnType.VECTOR,  # a blob to the server
    }
)
_LISTED = frozenset({ColumnType.ENUM, ColumnType.SET})


class _Field(IntEnum):
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


@dataclass(slots=True)
class TableMetadata:
    """By the ordinal of a column; without an element where nothing is said of it."""

    has_signedness: bool = False
    unsigned: dict[int, bool] = field(default_factory=dict)
    charsets: dict[int, str | None] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    elements: dict[int, tuple[str, ...]] = field(default_factory=dict)
    key: dict[int, int] = field(default_factory=dict)  # ordinal → length of the prefix, or 0
    visible: list[bool] = field(default_factory=list)


def read_metadata(reader: ByteReader, types: list[int], fde: FormatDescription) -> TableMetadata:
    """The rest of the event. `types`: the real type of each column. Raises `BadEvent` for anything cut or impossible."""
    said = TableMetadata()
    listed = [i for i, kind in enumerate(types) if kind in _LISTED]
    element_lists: list[tuple[int, bytes]] = []
    while reader:
        kind = reader.integer(1)
        value = ByteReader(reader.sized(), f"metadata field {kind}")
        if kind == _Field.SIGNEDNESS:
            said.unsigned = _read_signedness(value.data, types, fde)
        elif kind == _Field.DEFAULT_CHARSET:
            said.charsets.update(_default_charsets(value, _character_columns(types, geometry=_has_geometry(fde))))
        elif kind == _Field.COLUMN_CHARSET:
            said.charsets.update(_column_charsets(value, types, fde))
        elif kind == _Field.ENUM_AND_SET_DEFAULT_CHARSET:
            said.charsets.update(_default_charsets(value, listed))
        elif kind == _Field.ENUM_AND_SET_COLUMN_CHARSET:
            said.charsets.update({i: _charset(value.packed()) for i in listed})
        elif kind == _Field.COLUMN_NAME:
            while value:
                said.names.append(value.sized().decode("utf-8", "replace"))
            if len(said.names) != len(types):
                raise _bad(f"{len(said.names)} names for {len(types)} columns")
        elif kind in (_Field.SET_ELEMENTS, _Field.ENUM_ELEMENTS):
            element_lists.append((ColumnType.SET if kind == _Field.SET_ELEMENTS else ColumnType.ENUM, value.data))
        elif kind == _Field.PRIMARY_KEY:
            while value:
                said.key[value.packed()] = 0
        elif kind == _Field.PRIMARY_KEY_WITH_PREFIX:
            while value:
                ordinal = value.packed()
                said.key[ordinal] = value.packed()
        elif kind == _Field.VISIBILITY:
            said.visible = list(_bits(value.data))
    if any(ordinal >= len(types) for ordinal in said.key):
        raise _bad("a key column that does not exist")
    # The elements of enums and sets come before their charsets, so they are decoded last.
    for listed_type, data in element_lists:
        value = ByteReader(data, "the elements of an enum or set")
        for i in (i for i in listed if types[i] == listed_type):
            raw = [value.sized() for _ in range(value.packed())]
            elements = _elements(raw, said.charsets.get(i))
            if elements is not None:
                said.elements[i] = elements
    said.has_signedness = all(i in said.unsigned for i, kind in enumerate(types) if kind in _NUMERIC)
    return said


def _bad(message: str) -> BadEvent:
    return BadEvent(message, event_type=EventType.TABLE_MAP)


def _bits(data: bytes) -> Iterator[bool]:
    for byte in data:
        for shift in range(7, -1, -1):
            yield bool(byte >> shift & 1)


def _read_signedness(data: bytes, types: list[int], fde: FormatDescription) -> dict[int, bool]:
    """A bit for each numeric column. Some servers have one for YEAR too: of those that may, or may not, what both
    readings agree on."""
    readings = []
    for has_year in (True, False) if fde.signs_years is None else (fde.signs_years,):
        numeric = [i for i, kind in enumerate(types) if kind in _NUMERIC or (has_year and kind == ColumnType.YEAR)]
        bits = list(_bits(data))
        fits = len(data) == (len(numeric) + 7) // 8 and not any(bits[len(numeric) :])
        if fits or (fde.signs_years is not None and len(bits) >= len(numeric)):
            readings.append(dict(zip(numeric, bits, strict=False)))
    if not readings:
        raise _bad("a signedness that does not fit the columns")
    first, last = readings[0], readings[-1]
    return {i: bit for i, bit in first.items() if types[i] == ColumnType.YEAR or last.get(i) == bit}


def _has_geometry(fde: FormatDescription) -> bool:
    """Whether geometry columns are among those with a charset: to MariaDB they are blobs, and to MySQL they are not."""
    return fde.flavour is Flavour.MARIADB


def _character_columns(types: list[int], *, geometry: bool) -> list[int]:
    return [i for i, kind in enumerate(types) if kind in _CHARACTER or (geometry and kind == ColumnType.GEOMETRY)]


def _charset(collation_id: int) -> str:
    return charset_of(collation_id) or f"of collation {collation_id}"


def _column_charsets(value: ByteReader, types: list[int], fde: FormatDescription) -> dict[int, str | None]:
    """The collation of each column with a charset. Their number says whether geometry is among them."""
    found: list[str | None] = []
    while value:
        found.append(_charset(value.packed()))
    for geometry in (_has_geometry(fde), not _has_geometry(fde)):
        columns = _character_columns(types, geometry=geometry)
        if len(columns) == len(found):
            return dict(zip(columns, found, strict=True))
    raise _bad(f"{len(found)} charsets do not fit the columns")


def _default_charsets(value: ByteReader, ordinals: list[int]) -> dict[int, str | None]:
    """A default collation, then pairs (index among these columns, collation) for the columns that have another."""
    default = _charset(value.packed())
    found: dict[int, str | None] = dict.fromkeys(ordinals, default)
    while value:
        index = value.packed()
        collation = value.packed()
        if index >= len(ordinals):
            raise _bad("a charset for a column that does not exist")
        found[ordinals[index]] = _charset(collation)
    return found


def _elements(raw: list[bytes], charset: str | None) -> tuple[str, ...] | None:
    """The elements of an enum or set, which are in the column's charset. MySQL 8.0 says it only in its later versions:
    without it they are known if they look the same in nearly all charsets."""
    if charset in CHARSETS:
        try:
            return tuple(decode_exactly(element, str(charset)) for element in raw)
        except (ValueError, NotSupported):
            return None
    if all(element.isascii() and (element.decode("ascii").isprintable() or not element) for element in raw):
        return tuple(element.decode("ascii") for element in raw)
    return None
