"""Every kind of column, with values and a slow formatter of its own: what the fast encoders are compared with.

A value is described by its parts (a date is a year, a month and a day); packing into the physical form and printing
both start from the parts, so that neither can hide a mistake of the other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.log.position import Seq
from penstock.schema.changes import SEQ_DTYPE, ChangeBatch
from penstock.schema.model import Column, TableSchema

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Kind:
    column: Column
    physical: pa.DataType
    values: st.SearchStrategy[Any]
    pack: Callable[[Any], Any]
    text: Callable[[Any], str]
    lake: Callable[[Any], Any]


def same(value: Any) -> Any:
    return value


def integer(mysql_type: str, physical: pa.DataType, low: int, high: int, lake: Callable[[Any], Any] = same) -> Kind:
    edges = st.sampled_from([low, high, 0, high // 2])
    return Kind(Column("", mysql_type), physical, edges | st.integers(low, high), same, str, lake)


def decimal(precision: int, scale: int) -> Kind:
    top = 10**precision - 1
    values = st.sampled_from([0, 1, -1, top, -top]) | st.integers(-top, top)
    column = Column("", f"decimal({precision},{scale})")

    def value(unscaled: int) -> Decimal:
        return Decimal((int(unscaled < 0), tuple(int(d) for d in str(abs(unscaled))), -scale))

    def text(unscaled: int) -> str:
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        whole = digits[: len(digits) - scale] + ("." + digits[len(digits) - scale :] if scale else "")
        return "-" + whole if unscaled < 0 else whole

    if precision > 38:
        return Kind(column, pa.string(), values, text, text, text)
    return Kind(column, pa.decimal128(precision, scale), values, value, text, value)


DATES = (
    st.tuples(st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31))
    | st.just((0, 0, 0))
    | st.just((2023, 2, 29))
)


def calendar(parts: tuple[int, ...]) -> date | None:
    try:
        return date(*parts[:3])
    except ValueError:
        return None


def fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def rounded(fsp: int) -> st.SearchStrategy[int]:
    """Microseconds as a column of that many digits holds them."""
    return st.integers(0, 10**fsp - 1).map(lambda n: n * 10 ** (6 - fsp))


def datetime_kind(fsp: int) -> Kind:
    clock = st.tuples(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), rounded(fsp))
    values = st.tuples(DATES, clock).map(lambda pair: (*pair[0], *pair[1])) | st.just((0,) * 7)

    def pack(v: tuple[int, ...]) -> int:
        y, mo, d, h, mi, s, us = v
        return ((y * 13 + mo) << 22 | d << 17 | h << 12 | mi << 6 | s) << 24 | us

    def text(v: tuple[int, ...]) -> str:
        return "{:04d}-{:02d}-{:02d} {:02d}:{:02d}:{:02d}".format(*v[:6]) + fraction(v[6], fsp)

    def lake(v: tuple[int, ...]) -> datetime | None:
        return datetime(*v) if calendar(v) else None  # type: ignore[arg-type]

    return Kind(Column("", f"datetime({fsp})" if fsp else "datetime"), pa.int64(), values, pack, text, lake)


def timestamp_kind(fsp: int) -> Kind:
    seconds = st.sampled_from([0, 1, 951_782_400, 951_868_800, 2**31 - 1]) | st.integers(0, 2**32 - 1)
    values = st.tuples(seconds, rounded(fsp)).map(lambda pair: pair[0] * 1_000_000 + pair[1])

    def moment(v: int) -> datetime:
        return EPOCH + timedelta(microseconds=v)

    def text(v: int) -> str:
        whole = moment(v).strftime("%Y-%m-%d %H:%M:%S") if v else "0000-00-00 00:00:00"
        return whole + fraction(v % 1_000_000, fsp)

    column = Column("", f"timestamp({fsp})" if fsp else "timestamp")
    return Kind(column, pa.int64(), values, same, text, lambda v: moment(v) if v else None)


def time_kind(fsp: int) -> Kind:
    values = st.tuples(st.booleans(), st.integers(0, 838), st.integers(0, 59), st.integers(0, 59), rounded(fsp))

    def pack(v: tuple[bool, int, int, int, int]) -> int:
        micros = ((v[1] * 60 + v[2]) * 60 + v[3]) * 1_000_000 + v[4]
        return -micros if v[0] else micros

    def text(v: tuple[bool, int, int, int, int]) -> str:
        sign = "-" if v[0] and any(v[1:]) else ""
        return f"{sign}{v[1]:02d}:{v[2]:02d}:{v[3]:02d}{fraction(v[4], fsp)}"

    return Kind(Column("", f"time({fsp})" if fsp else "time"), pa.int64(), values, pack, text, text)


def float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def shortest(single: bool) -> Callable[[float], str]:
    """Numbers are compared by what they read back as, see `canal_value`."""
    return lambda number: repr(float32(number)) if single else repr(number)


ELEMENTS = ("small", "with space", 'qu"ote', "ß", "Z")
WIDE = tuple(f"m{i}" for i in range(64))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["", "\x00\x1f\x7f", '"\\/', "\r\n", "😀\u2028"]
)
BLOBS = st.binary(max_size=20) | st.just(bytes(range(256)))
GEOMETRIES = st.tuples(st.sampled_from([0, 1, 4326, 2**32 - 1]), BLOBS).map(lambda v: struct.pack("<I", v[0]) + v[1])
FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=4)


def enum_kind() -> Kind:
    column = Column("", "enum('small','with space','qu\"ote','ß','Z')", elements=ELEMENTS)
    return Kind(column, pa.uint16(), st.integers(0, 5), same, str, lambda v: ("", *ELEMENTS)[v])


def set_kind(elements: tuple[str, ...]) -> Kind:
    column = Column("", "set(" + ",".join(f"'{e}'" for e in elements) + ")", elements=elements)
    top = 2 ** len(elements) - 1

    def names(mask: int) -> str:
        return ",".join(element for bit, element in enumerate(elements) if mask >> bit & 1)

    return Kind(column, pa.uint64(), st.sampled_from([0, 1, top]) | st.integers(0, top), same, str, names)


KINDS: dict[str, Kind] = {
    "tiny": integer("tinyint(4)", pa.int8(), -128, 127),
    "utiny": integer("tinyint(3) unsigned", pa.uint8(), 0, 255),
    "small": integer("smallint", pa.int16(), -(2**15), 2**15 - 1),
    "usmall": integer("smallint unsigned", pa.uint16(), 0, 2**16 - 1),
    "medium": integer("mediumint", pa.int32(), -(2**23), 2**23 - 1),
    "umedium": integer("mediumint unsigned", pa.uint32(), 0, 2**24 - 1),
    "int": integer("int(11)", pa.int32(), -(2**31), 2**31 - 1),
    "uint": integer("int(10) unsigned", pa.uint32(), 0, 2**32 - 1),
    "big": integer("bigint", pa.int64(), -(2**63), 2**63 - 1),
    "ubig": integer("bigint unsigned", pa.uint64(), 0, 2**64 - 1, Decimal),
    "bit1": integer("bit(1)", pa.uint64(), 0, 1),
    "bit63": integer("bit(63)", pa.uint64(), 0, 2**63 - 1),
    "bit64": integer("bit(64)", pa.uint64(), 0, 2**64 - 1, Decimal),
    "money": decimal(12, 2),
    "whole": decimal(18, 0),
    "deep": decimal(38, 30),
    "all": decimal(38, 0),
    "frac": decimal(10, 10),
    "huge": decimal(65, 30),
    "float": Kind(Column("", "float"), pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False), same, shortest(True), same),
    "double": Kind(Column("", "double"), pa.float64(), st.floats(allow_nan=False, allow_infinity=False), same, shortest(False), same),
    "year": Kind(Column("", "year(4)"), pa.int16(), st.just(0) | st.integers(1901, 2155), same, lambda v: f"{v:04d}", same),
    "date": Kind(Column("", "date"), pa.int32(), DATES, lambda v: v[0] << 9 | v[1] << 5 | v[2], lambda v: "{:04d}-{:02d}-{:02d}".format(*v), calendar),
    "datetime": datetime_kind(0),
    "datetime3": datetime_kind(3),
    "datetime6": datetime_kind(6),
    "timestamp": timestamp_kind(0),
    "timestamp6": timestamp_kind(6),
    "time": time_kind(0),
    "time1": time_kind(1),
    "time6": time_kind(6),
    "enum": enum_kind(),
    "set": set_kind(ELEMENTS),
    "set64": set_kind(WIDE),
    "char": Kind(Column("", "char(20)"), pa.string(), TEXTS, same, same, same),
    "varchar": Kind(Column("", "varchar(20)"), pa.string(), TEXTS, same, same, same),
    "text": Kind(Column("", "longtext"), pa.string(), TEXTS, same, same, same),
    "json": Kind(Column("", "json"), pa.string(), st.sampled_from(['{"a": [1, "ü"]}', "null", '"x\\n"']), same, same, same),
    "binary": Kind(Column("", "binary(20)"), pa.binary(), BLOBS, same, lambda v: v.decode("latin-1"), same),
    "blob": Kind(Column("", "mediumblob"), pa.binary(), BLOBS, same, lambda v: v.decode("latin-1"), same),
    "uuid": Kind(Column("", "uuid"), pa.string(), st.uuids().map(str), same, same, same),
    "vector": Kind(Column("", "vector(4)"), pa.binary(), FLOATS.map(lambda v: struct.pack(f"<{len(v)}f", *v)), same, lambda v: v.decode("latin-1"), same),
    "point": Kind(Column("", "point"), pa.binary(), GEOMETRIES, same, lambda v: v.decode("latin-1"), same),
}  # fmt: skip


@dataclass(frozen=True)
class Change:
    """One row by the values of its columns; None is NULL. Inserts have no `before`, deletes no `after`."""

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    seq: Seq
    commit_ts: int

    @property
    def shown(self) -> dict[str, Any]:
        image = self.before if self.op == "D" else self.after
        assert image is not None
        return image


def table_of(names: list[str]) -> TableSchema:
    columns = []
    for ordinal, name in enumerate(names):
        column = KINDS[name].column
        columns.append(Column(name, column.mysql_type, primary_key=ordinal == 0, elements=column.elements))
    return TableSchema("shop", "every thing", 42, tuple(columns))


def batch_of(names: list[str], changes: list[Change]) -> ChangeBatch:
    def column(name: str, images: list[dict[str, Any] | None]) -> pa.Array[Any]:
        kind = KINDS[name]
        packed = [None if image is None or image[name] is None else kind.pack(image[name]) for image in images]
        return pa.array(packed, kind.physical)

    return ChangeBatch(
        table_of(names),
        np.array([ord(change.op) for change in changes], np.uint8),
        np.array([tuple(change.seq) for change in changes], SEQ_DTYPE),
        np.array([change.commit_ts for change in changes], np.uint64),
        [column(name, [change.before for change in changes]) for name in names],
        [column(name, [change.after for change in changes]) for name in names],
    )


def rows_of(names: list[str], changes: list[Change], *, every_update: bool = False) -> list[Change]:
    """The changes as rows of a format that finds rows by key: an update that changes the first column, which is the key,
    is a delete and an insert. With `every_update`, so are all others."""
    rows: list[Change] = []
    for change in changes:
        if change.op == "U" and change.before and change.after:
            before, after = (canal_value(names[0], image[names[0]]) for image in (change.before, change.after))
            if every_update or before != after:
                rows.append(Change("D", change.before, None, change.seq, change.commit_ts))
                rows.append(Change("I", None, change.after, change.seq, change.commit_ts))
                continue
        rows.append(change)
    return rows


def canal_value(name: str, value: Any) -> str | None:
    return None if value is None else KINDS[name].text(value)


def lake_value(name: str, value: Any) -> Any:
    return None if value is None else KINDS[name].lake(value)


def equal_text(name: str, found: str | None, expected: str | None) -> bool:
    """Text by text; numbers of floating columns by the bits that they read back as."""
    if name in ("float", "double") and found is not None and expected is not None:
        numbers = float(found), float(expected)
        if name == "float":
            numbers = float32(numbers[0]), float32(numbers[1])
        return numbers[0] == numbers[1] and math.copysign(1, numbers[0]) == math.copysign(1, numbers[1])
    return found == expected


@st.composite
def change_lists(draw: st.DrawFn, names: list[str], max_size: int = 8) -> list[Change]:
    """Changes in seq order; updates leave about half of their columns as they were."""
    image = st.fixed_dictionaries({name: st.none() | KINDS[name].values for name in names})
    changes: list[Change] = []
    for row in range(draw(st.integers(1, max_size))):
        op = draw(st.sampled_from("IUD"))
        before = draw(image) if op != "I" else None
        after = draw(image) if op != "D" else None
        if before is not None and after is not None:
            kept = draw(st.sets(st.sampled_from(names)))
            after = {name: before[name] if name in kept else value for name, value in after.items()}
        seq = Seq(3, draw(st.sampled_from([0, 2**64 - 1])), 2**32 - 1, row)
        changes.append(Change(op, before, after, seq, draw(st.integers(1 << 40, 1 << 59))))
    return changes
