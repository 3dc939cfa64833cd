"""A `sql:` rule on the way of the rows: what goes into Spark SQL, and what becomes of what comes out. No Spark here.

Both images of a row are rows of the relation, the one before first; they are numbered in the order of the log. The number
travels with a row (`ROW`), with some bits of its seq as a check. What the SELECT only passes on, under whatever name, never
goes through Spark: it keeps its MySQL type and every value, zero dates too. The WHERE means what a filter does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.parquet.columns import parquet_type, parquet_values
from penstock.errors import BadInput, Terminal
from penstock.rules.expressions.types import Array
from penstock.rules.images import Images, Mask
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE
from penstock.schema.model import Column

ROW = "_penstock_row"
_CHECK_BITS = 16
_SCALE_MAX = 30  # of a decimal in MySQL
_PLAIN_TYPES = {
    "boolean": "tinyint(1)",
    "tinyint": "tinyint",
    "smallint": "smallint",
    "int": "int",
    "bigint": "bigint",
    "float": "float",
    "double": "double",
    "binary": "longblob",
    "date": "date",
    "timestamp_ntz": "datetime(6)",
    "timestamp": "timestamp(6)",
}


class BadSql(BadInput):
    """A statement that does not fit its table, or that is no function of one row."""


class NotAnalysed(BadInput):
    """A statement that nobody has asked Spark about, in a process without Spark."""


class SqlColumn(NamedTuple):
    """A column of the result. `source`: the column that it passes on, else None; `type`: in Spark's words; `uses`: those that
    it is made of. Numbers are those of the columns that the statement sees."""

    name: str
    source: int | None
    type: str
    uses: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A statement as Spark understood it, for one version of a table. `where`: the columns that its WHERE reads; None without
    one."""

    columns: tuple[SqlColumn, ...]
    where: tuple[int, ...] | None = None

    @property
    def computed(self) -> tuple[SqlColumn, ...]:
        return tuple(column for column in self.columns if column.source is None)

    @property
    def needs(self) -> frozenset[int]:
        """The columns that Spark must see."""
        return frozenset(self.where or ()).union(*(column.uses for column in self.computed))

    @property
    def needs_spark(self) -> bool:
        """Whether there is anything to compute: else it only chooses columns."""
        return self.where is not None or bool(self.computed)

    def to_json(self) -> str:
        return json.dumps({"columns": self.columns, "where": self.where})

    @classmethod
    def from_json(cls, text: str) -> SqlPlan:
        value = json.loads(text)
        columns = (SqlColumn(name, source, kind, tuple(uses)) for name, source, kind, uses in value["columns"])
        return cls(tuple(columns), None if value["where"] is None else tuple(value["where"]))


class Selection(NamedTuple):
    """A statement, the columns that it sees, and what Spark understood."""

    statement: str
    columns: tuple[Column, ...]
    plan: SqlPlan


class SqlRows(NamedTuple):
    """What Spark made of images: which of them the WHERE lets pass, and the computed columns, in their physical form and null
    where there is none. `reason`: why it stopped in front of row `stopped`; empty if it did not."""

    was: Mask
    now: Mask
    before: list[Array]
    after: list[Array]
    reason: str = ""
    stopped: int = 0


class Sql:
    """How a process comes to what Spark SQL says. This one cannot."""

    def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
        """Raises `BadSql` where the statement does not fit, `NotAnalysed` where nobody knows."""
        raise NotAnalysed("sql is understood by Spark alone, which is not here")

    def rows(self, table: str, selection: Selection, images: Images) -> SqlRows:
        """The images of a table, in the order of the log, one call after the other."""
        raise NotAnalysed("sql is computed by Spark alone, which is not here")


NO_SQL = Sql()


def plan_key(statement: str, columns: Sequence[Column]) -> str:
    """The same for what Spark understands in the same way."""
    seen = [statement, [(column.name, str(parquet_type(column))) for column in columns]]
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def column_of(made: SqlColumn, columns: Sequence[Column]) -> Column:
    """The column as readers of the sink see it. Raises `BadSql` for a type that MySQL does not have."""
    if made.source is not None:
        return replace(columns[made.source], name=made.name)
    if made.type.startswith("string"):
        return Column(made.name, "longtext", charset="utf8mb4")
    if made.type.startswith("decimal("):
        if int(made.type.partition(",")[2].rstrip(")")) > _SCALE_MAX:
            raise BadSql(
                f"{made.name} is {made.type}, and a decimal has at most {_SCALE_MAX} digits after the point; cast it"
            )
        return Column(made.name, made.type)
    if made.type not in _PLAIN_TYPES:
        what = (
            "cast it to a type"
            if made.type in ("void", "null")
            else f"to_json({made.name}) makes a text of it, or cast it"
        )
        raise BadSql(f"{made.name} is {made.type}, which no column of MySQL is; {what}")
    return Column(made.name, _PLAIN_TYPES[made.type])


# ---- into Spark


def relation_schema(columns: Sequence[Column]) -> pa.Schema:
    """The rows that Spark sees, and their number."""
    return pa.schema([*(pa.field(column.name, parquet_type(column)) for column in columns), pa.field(ROW, pa.int64())])


def spark_type(kind: pa.DataType) -> str:
    """The type in Spark's words."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    return {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "date32[day]": "date"}.get(
        str(kind), str(kind)
    )


def image_count(images: Images) -> int:
    return int((images.op != OP_INSERT).sum() + (images.op != OP_DELETE).sum())


def relation_rows(images: Images, columns: Sequence[Column], plan: SqlPlan, first: int) -> pa.Table:
    """The images as rows of the relation, numbered from `first` on. Columns that nothing needs are null."""
    order, _ = _order(images)
    taken: Any = pa.array(order)
    made: list[Any] = []
    for ordinal, (column, field) in enumerate(zip(columns, relation_schema(columns), strict=False)):
        if ordinal in plan.needs:
            both = (parquet_values(column, images.before[ordinal]), parquet_values(column, images.after[ordinal]))
            made.append(pa.concat_arrays([values.cast(field.type) for values in both]).take(taken))
        else:
            made.append(pa.nulls(len(order), field.type))
    made.append(pa.array(_numbers(images, order, first), pa.int64()))
    return pa.Table.from_arrays(made, schema=relation_schema(columns))


def _order(images: Images) -> tuple[npt.NDArray[np.int64], Mask]:
    """Which image comes when: that before of row r is r, that after is r plus the number of rows."""
    count = len(images)
    had, has = images.op != OP_INSERT, images.op != OP_DELETE
    first = np.cumsum(had.astype(np.int64) + has) - had - has
    order = np.empty(int(had.sum() + has.sum()), np.int64)
    order[first[had]] = np.flatnonzero(had)
    order[(first + had)[has]] = np.flatnonzero(has) + count
    return order, had


def _numbers(images: Images, order: npt.NDArray[np.int64], first: int) -> npt.NDArray[np.int64]:
    """The numbers of the images, each with some bits of what it is."""
    count = max(1, len(images))
    seq = images.seq[order % count] if len(order) else images.seq[:0]
    mixed = seq["entry"].astype(np.uint64) * 31 + seq["event"].astype(np.uint64) * 7 + seq["row"].astype(np.uint64)
    check = (mixed.astype(np.int64) & 0x7FFF) << 1 | (order >= len(images))
    return (np.arange(first, first + len(order), dtype=np.int64) << _CHECK_BITS) | check


def number_of(row: int) -> int:
    """The number of an image, of its `ROW`."""
    return row >> _CHECK_BITS


def first_after(rows: npt.NDArray[np.int64], number: int) -> int:
    """How many of these `ROW`s, ascending, are those of images before `number`."""
    return int(np.searchsorted(rows, number << _CHECK_BITS))


# ---- out of Spark


def outcome(images: Images, plan: SqlPlan, result: pa.Table | None, first: int) -> SqlRows:
    """`result`: what Spark made of the `relation_rows` of these images, `ROW` before the computed columns; None where nothing
    had to be computed. Raises `Terminal` where it cannot be."""
    had, has = images.op != OP_INSERT, images.op != OP_DELETE
    if result is None:
        return SqlRows(had, has, [], [])
    order, _ = _order(images)
    rows = np.asarray(result.column(0).to_numpy(), np.int64)
    at = (rows >> _CHECK_BITS) - first
    wrong = len(at) and (at[0] < 0 or at[-1] >= len(order) or (np.diff(at) <= 0).any())
    if wrong or not np.array_equal(_numbers(images, order, first)[at], rows):
        raise Terminal("what Spark made of a table's rows does not belong to them")  # never passed on
    if plan.where is None and len(at) != len(order):
        raise Terminal(f"Spark made {len(at):,} rows of {len(order):,}, and nothing was to be left out")
    image = order[at]
    count = len(images)
    sides = []
    for here, rows_of in ((image < count, image[image < count]), (image >= count, image[image >= count] - count)):
        passed = np.zeros(count, np.bool_)
        passed[rows_of] = True
        place = np.zeros(count, np.int64)
        place[rows_of] = np.flatnonzero(here)
        chosen: Any = pa.array(place, mask=~passed)
        values = [_one(column) for column in result.columns[1:]]
        sides.append((passed, [physical(value.take(chosen)) for value in values]))
    (was, before), (now, after) = sides
    return SqlRows(was, now, before, after)


def shaped(images: Images, plan: SqlPlan, made: SqlRows) -> tuple[Images, npt.NDArray[np.int64]]:
    """The rows that the sink sees, and which of the images they were."""
    updated = images.op == OP_UPDATE
    rows = np.flatnonzero(made.was | made.now)
    before, after = iter(made.before), iter(made.after)
    seen = replace(
        images,
        before=[images.before[c.source] if c.source is not None else next(before) for c in plan.columns],
        after=[images.after[c.source] if c.source is not None else next(after) for c in plan.columns],
        in_before=_presence(images.in_before, images.op != OP_INSERT, plan),
        in_after=_presence(images.in_after, images.op != OP_DELETE, plan),
    ).without_what_is_absent(0)
    comes, goes = (updated & made.now & ~made.was)[rows], (updated & made.was & ~made.now)[rows]
    return seen.take(rows).as_inserts_and_deletes(comes, goes), rows


def _presence(present: list[Mask] | None, there: Mask, plan: SqlPlan) -> list[Mask] | None:
    """A computed column is absent where one that it is made of is."""
    if present is None:
        return None
    return [
        present[c.source] if c.source is not None else np.logical_and.reduce([there, *(present[i] for i in c.uses)])
        for c in plan.columns
    ]


def _one(column: Any) -> Array:
    made: Array = (
        column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])
    )
    return made


def physical(values: Array) -> Array:
    """Values of Spark in the physical form of `column_of`. What MySQL has no value for is NULL: not a number, infinity, years
    before 1 and after 9999, timestamps up to 1970-01-01 00:00:00."""
    made: Array = _physical(values)
    return made


def _physical(values: Any) -> Any:
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_floating(kind):
        return _where(pc.is_finite(values), values)
    if pa.types.is_date(kind):
        year, month, day = pc.year(values), pc.month(values), pc.day(values)
        packed = pc.bit_wise_or(pc.shift_left(year, 9), pc.bit_wise_or(pc.shift_left(month, 5), day))
        return _where(_in_calendar(year), packed).cast(pa.int32())
    if pa.types.is_timestamp(kind):
        micros = values.cast(pa.timestamp("us", kind.tz))
        if kind.tz:
            number = micros.view(pa.int64())
            return _where(pc.greater(number, pa.scalar(0, pa.int64())), number)
        return _packed_datetime(micros)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return values.cast(pa.string() if pa.types.is_large_string(kind) else pa.binary())
    return values


def _packed_datetime(values: Any) -> Any:
    year = pc.year(values)
    number = pc.shift_left(pc.add(pc.multiply(year, 13), pc.month(values)), 22)
    for part, bits in ((pc.day, 17), (pc.hour, 12), (pc.minute, 6), (pc.second, 0)):
        number = pc.bit_wise_or(number, pc.shift_left(part(values), bits))
    micros = pc.add(pc.multiply(pc.millisecond(values), 1000), pc.microsecond(values))
    return _where(_in_calendar(year), pc.bit_wise_or(pc.shift_left(number, 24), micros))


def _in_calendar(year: Any) -> Any:
    found: Any = pc.and_(
        pc.greater_equal(year, pa.scalar(1, pa.int64())), pc.less_equal(year, pa.scalar(9999, pa.int64()))
    )
    return found


def _where(there: Any, values: Any) -> Any:
    made: Any = pc.if_else(there, values, pa.scalar(None, values.type))
    return made
