"""A table as it is now, from its changes: they are applied version by version, in order.

What is kept in memory is the table itself (or this task's share of its keys) and one piece of changes. Its rows stand in
the order of their last changes (without a key: of the first), so that a task that Spark runs again gives what it gave
before: Arrow's grouping is on threads, and its order is chance. Statements that
changed rows without row events are applied where they say all of it: the default of a column that was added. Where they do
not (a column under a new name, one that is computed, values that were cut to fit, partitions that went), the table cannot
be had from its changes, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.encode.parquet.columns import parquet_type
from penstock.encode.text import string_data
from penstock.errors import BadInput
from penstock.schema.ddl.tokens import Unreadable, tokens_of
from penstock.schema.kept_values import charsets_in, made_anew
from penstock.schema.model import BINARY_TYPES, CHARACTER_TYPES, INTEGER_TYPES, Column, DdlType, TableSchema
from penstock.spark.tables.history import shown_statement
from penstock.spark.tables.kept_values import fit, in_charset
from penstock.spark.tables.kernels import hashed_strings
from penstock.spark.tables.rows import columns_schema, converted, nulls, one_array
from penstock.spark.tables.text_values import plain_values

_ROWS_MOVED = frozenset({DdlType.DROP_PARTITION, DdlType.TRUNCATE_PARTITION, DdlType.EXCHANGE_PARTITION})
_COUNTING = {"AUTO_INCREMENT", "SERIAL"}
_CONVERTING = {"CONVERT", "MODIFY", "CHANGE"}
_HINT = 'its changes can be read: view "changes"'
_PIECE_ROWS = 1 << 20  # of changes that are applied at once
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: neighbouring keys go to different shares


class Share(NamedTuple):
    """The keys of one task: those whose hash leaves `number` when divided by `of`."""

    number: int = 0
    of: int = 1


WHOLE = Share()


def can_be_shared(versions: Iterable[TableSchema]) -> bool:
    """Whether several tasks can each have a share of the keys: not where a statement changed what the key is."""
    return (
        len({tuple(table.columns[i] for i in table.primary_key or range(len(table.columns))) for table in versions})
        == 1
    )


class CurrentTable:
    """Takes changes in order, each with the version of its table, and keeps what is left of them."""

    def __init__(self, first: TableSchema, share: Share = WHOLE) -> None:
        self._table = first
        self._share = share
        self._rows = columns_schema(first).empty_table()
        self._waiting: list[pa.Table] = []
        self._waiting_rows = 0

    def take(self, table: TableSchema, changes: Iterable[pa.Table]) -> None:
        """The changes of a version, which is that of the last call or a later one."""
        if table.version != self._table.version:
            self._apply()
            if table.ddl_type in _ROWS_MOVED and (self._rows.num_rows or table.ddl_type is DdlType.EXCHANGE_PARTITION):
                raise BadInput(
                    f"{table.name}: {shown_statement(table)} moved rows without changes that tell which", hint=_HINT
                )
            self._rows = _altered(self._rows, self._table, table)
            self._table = table
        for piece in changes:
            mine = _of_share(piece, table, self._share)
            if mine.num_rows:
                self._waiting.append(mine)
                self._waiting_rows += mine.num_rows
            if self._waiting_rows >= max(_PIECE_ROWS, self._rows.num_rows):
                self._apply()

    def rows(self) -> pa.Table:
        """The rows of the table now, with the columns of the last version."""
        self._apply()
        return self._rows

    def _apply(self) -> None:
        if not self._waiting:
            return
        names = [column.name for column in self._table.columns]
        keys = [names[i] for i in self._table.primary_key]
        there = self._rows.add_column(0, "_op", pa.array(np.full(self._rows.num_rows, "I", "<U1"), pa.string()))
        changes = pa.concat_tables([there, *(piece.select(["_op", *names]) for piece in self._waiting)])
        self._rows = (_by_key(changes, keys) if keys else _by_row(changes, names)).select(names).combine_chunks()
        self._waiting, self._waiting_rows = [], 0


def _by_key(changes: pa.Table, keys: list[str]) -> pa.Table:
    """The last change of each key, unless it is a delete."""
    numbered = _numbered(changes, keys).append_column("n", pa.array(np.arange(changes.num_rows)))
    last = numbered.group_by(numbered.column_names[:-1]).aggregate([("n", "max")]).column("n_max")
    rows = changes.take(np.sort(last.to_numpy()))
    return rows.filter(pc.not_equal(rows.column("_op"), pa.scalar("D")))


def _by_row(changes: pa.Table, names: list[str]) -> pa.Table:
    """Without a key only all columns together tell a row, and equal rows are as many as were inserted and not deleted."""
    ops = changes.column("_op")
    delta = pc.subtract(pc.equal(ops, pa.scalar("I")).cast(pa.int8()), pc.equal(ops, pa.scalar("D")).cast(pa.int8()))
    places = pa.array(np.arange(changes.num_rows))
    counted = _numbered(changes, names).append_column("n", delta.cast(pa.int64())).append_column("at", places)
    grouped = counted.group_by(counted.column_names[:-2]).aggregate([("n", "sum"), ("at", "min")])
    count = np.maximum(0, np.asarray(grouped.column("n_sum").to_numpy()))
    order = np.argsort(grouped.column("at_min").to_numpy())
    rows = grouped.take(np.repeat(order, count[order]))
    return rows.select(counted.column_names[:-2]).rename_columns(names)


def _numbered(changes: pa.Table, names: list[str]) -> pa.Table:
    """Columns under names of our own: Arrow takes `.a` for a path, and a user may use any name."""
    return changes.select(names).rename_columns([f"c{number}" for number in range(len(names))])


# -- statements that change rows -----------------------------------------------------------------------------------


def _altered(rows: pa.Table, before: TableSchema, after: TableSchema) -> pa.Table:
    """The rows that were there, after the statement that made the version `after`."""
    if not rows.num_rows:
        return columns_schema(after).empty_table()
    old = {column.name.lower(): column for column in before.columns}
    new = {column.name.lower() for column in after.columns}
    statement = _Statement.of(after)
    made: dict[str, Any] = {}
    for column in after.columns:
        known = old.get(column.name.lower())
        if known is not None:
            values = rows.column(known.name)
            if column.name.lower() in statement.made_anew or not statement.keeps_texts(values, known):
                raise _untold(column, after)
            if not fit(values, known, column):
                raise _untold(column, after)
            made[column.name] = converted(values, known, column, after)
        elif old.keys() - new:
            raise BadInput(
                f"{after.name}: {shown_statement(after)} may have given a column another name: the values of {column.name} "
                "in older rows are not known",
                hint=_HINT,
            )
        else:
            made[column.name] = _filled(column, rows.num_rows, after, statement)
    return pa.table(made, schema=columns_schema(after))


class _Statement(NamedTuple):
    """What the statement of a version says of values. `made_anew`: columns, in lower case, whose values no change has."""

    made_anew: set[str]
    counts: bool  # it numbers the rows that are there
    named_defaults: set[str]  # words that stand for a value, in upper case: CURRENT_USER
    charsets: set[str]  # that columns which are there may have got: a sink's schema files do not have those of columns

    @classmethod
    def of(cls, table: TableSchema) -> _Statement:
        try:
            tokens = tokens_of(table.query)
        except Unreadable:  # by the rules of its session it is another text
            return cls({column.name.lower() for column in table.columns}, True, set(), set())
        words = {token.upper for token in tokens}
        named = {after.upper for token, after in pairwise(tokens) if token.upper == "DEFAULT"}
        charsets = charsets_in(tokens) if words & _CONVERTING else set()
        return cls(made_anew(tokens), bool(words & _COUNTING), named - {""}, charsets)

    def keeps_texts(self, values: Any, column: Column) -> bool:
        if column.base_type not in CHARACTER_TYPES:
            return True
        return all(in_charset(values, charset) for charset in self.charsets)


def _filled(column: Column, count: int, table: TableSchema, statement: _Statement) -> pa.Array[Any]:
    """What rows that were there got in a column that was added."""
    kind = parquet_type(column)
    text = column.default
    if column.name.lower() in statement.made_anew:
        raise _untold(column, table)
    if text is None and column.nullable:
        return nulls(count, kind)
    base = column.base_type
    if text is None and statement.counts and base in INTEGER_TYPES:
        raise _untold(column, table)
    if text is None:
        if base in INTEGER_TYPES or base in ("decimal", "float", "double"):
            text = "0"
        elif base in CHARACTER_TYPES or (base in BINARY_TYPES and base != "binary"):
            text = ""
        elif base == "enum" and column.elements:
            text = column.elements[0]
        elif base in ("date", "datetime", "timestamp"):
            return nulls(count, kind)  # the zero date
    elif text.upper() in statement.named_defaults:
        raise _untold(column, table)
    try:
        if text is not None and not column.computed and "(" not in text:
            value = plain_values(column, pa.array([text], pa.string()))
            return value.take(np.zeros(count, np.int64))
    except (pa.ArrowInvalid, ValueError):
        pass
    raise _untold(column, table)


def _untold(column: Column, table: TableSchema) -> BadInput:
    return BadInput(
        f"{table.name}: {shown_statement(table)} may have given older rows values of {column.name} that no change tells",
        hint=_HINT,
    )


# -- shares --------------------------------------------------------------------------------------------------------


def _of_share(rows: pa.Table, table: TableSchema, share: Share) -> pa.Table:
    if share.of == 1 or not rows.num_rows:
        return rows
    chosen = [table.columns[i] for i in table.primary_key] or list(table.columns)
    mixed = np.zeros(rows.num_rows, np.uint64)
    for column in chosen:
        mixed = (mixed ^ _hashes(rows.column(column.name))) * _MIX
    mine = (mixed >> np.uint64(32)) % np.uint64(share.of) == np.uint64(share.number)
    return rows.filter(pa.array(mine))


def _hashes(values: Any) -> npt.NDArray[np.uint64]:
    """Equal values have equal hashes, whatever the type of the column was when they were written."""
    text: Any = values if pa.types.is_binary(values.type) else pc.cast(values, pa.string())
    whole: Any = one_array(text)
    data, bounds = string_data(whole.fill_null(b"" if pa.types.is_binary(whole.type) else ""))
    out = np.empty(len(whole), np.uint64)
    hashed_strings(data, bounds, out)
    return out
