"""The rules of one table, bound to one version of it: its schema as the sink sees it, and what happens to its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from penstock.errors import BadInput
from penstock.rules.expressions.binding import BoundExpression, Inputs, bind, bind_filter
from penstock.rules.expressions.columns import column_for, physical_of
from penstock.rules.expressions.parser import parse
from penstock.rules.expressions.syntax import BadExpression
from penstock.rules.expressions.types import Array, Kind
from penstock.rules.images import Images, Mask
from penstock.rules.masks import keeps_rows_apart, masked, masked_column
from penstock.rules.settings import MaskName, Rule
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE
from penstock.schema.model import Column, TableSchema


class RuleMismatch(BadInput):
    """A rule cannot do with a table what it says."""


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule and how messages call it: its number among all rules of the sink, and its table."""

    name: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class _Step:
    """A rule, bound. Ordinals are those of the columns that the steps before it made."""

    name: str
    filter: BoundExpression | None
    masks: tuple[tuple[int, Column, MaskName], ...]
    computed: tuple[BoundExpression, ...]
    kept: tuple[int, ...] | None
    columns_before: tuple[Column, ...]


class TableRules:
    """`columns` are those that the sink sees. Raises `RuleMismatch` if the rules do not fit the table."""

    def __init__(self, rules: Sequence[NamedRule], table: TableSchema, key: bytes) -> None:
        self._key = key
        self._table = table.name
        columns = table.columns
        steps = []
        for named in rules:
            step, columns = _bound(named, columns, table.name)
            steps.append(step)
        self._steps = tuple(steps)
        self.columns: tuple[Column, ...] = columns

    def apply(self, images: Images) -> tuple[Images, str, int]:
        """The rows as the sink sees them; why it stops, and at which row of those given, if a filter cannot be told: then
        the rows are those before it."""
        reason, stopped = "", len(images)
        origin = np.arange(len(images))
        for step in self._steps:
            if step.filter is not None:
                column, at = _untold(step.filter, images)
                if column is not None:
                    reason = (
                        f"{step.name}: the server logged a row without column {step.columns_before[column].name}, "
                        "which the filter reads (binlog_row_image must be FULL)"
                    )
                    stopped = int(origin[at])
                    images, origin = images.slice(at), origin[:at]
                images, rows = _filtered(step.filter, images)
                origin = origin[rows]
            images = self._shaped(step, images)
        return images, reason, stopped

    def _shaped(self, step: _Step, images: Images) -> Images:
        if step.masks:
            before, after = list(images.before), list(images.after)
            for ordinal, column, mask in step.masks:
                before[ordinal] = masked(column, mask, before[ordinal], self._key)
                after[ordinal] = masked(column, mask, after[ordinal], self._key)
            images = replace(images, before=before, after=after)
        if step.computed:
            rows = len(images)
            images = images.with_columns([(_maker(one, rows), one.columns) for one in step.computed])
        return images if step.kept is None else images.select(step.kept)


def _maker(expression: BoundExpression, rows: int) -> Callable[[Sequence[Array]], Array]:
    def make(columns: Sequence[Array]) -> Array:
        return physical_of(expression.type, expression.run(Inputs(columns, rows)))

    return make


def _untold(condition: BoundExpression, images: Images) -> tuple[int | None, int]:
    """The first row whose filter cannot be told, because an image lacks a column of it, and that column."""
    first, found = len(images), None
    for present, there in ((images.in_before, images.op != OP_INSERT), (images.in_after, images.op != OP_DELETE)):
        if present is None:
            continue
        for column in condition.columns:
            missing = np.flatnonzero(there & ~present[column])
            if len(missing) and int(missing[0]) < first:
                first, found = int(missing[0]), column
    return found, first


def _filtered(condition: BoundExpression, images: Images) -> tuple[Images, npt.NDArray[np.int64]]:
    """The rows that the sink sees, and which they were. A row that an update brings into the filter is an insert for whoever
    sees only those inside, and one that leaves it a delete."""
    inserted, updated, deleted = (images.op == op for op in (OP_INSERT, OP_UPDATE, OP_DELETE))
    was = _matches(condition, images.before, updated | deleted)
    now = _matches(condition, images.after, updated | inserted)
    rows = np.flatnonzero(was | now)
    kept = images.take(rows)
    comes, goes = (updated & now & ~was)[rows], (updated & was & ~now)[rows]
    return kept.as_inserts_and_deletes(comes, goes), rows


def _matches(condition: BoundExpression, image: Sequence[Array], there: Mask) -> Mask:
    if not there.any():
        return there
    found = condition.run(Inputs(image, len(there))).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_) & there


def _bound(named: NamedRule, columns: tuple[Column, ...], table: str) -> tuple[_Step, tuple[Column, ...]]:
    """The step that a rule is, and the columns after it."""
    rule = named.rule
    before = columns

    def mismatch(what: str) -> RuleMismatch:
        return RuleMismatch(f"{named.name}: {table} {what}", hint="change the rule, or give it to other tables")

    names = {column.name.lower(): at for at, column in enumerate(columns)}
    listed = [name.lower() for name in (*rule.mask, *rule.columns, *rule.drop)]
    missing = [name for name in listed if name not in names]
    if missing and rule.is_exact:
        raise mismatch(f"has no column {missing[0]}, which the rule names")
    try:
        condition = None
        if rule.filter is not None:
            condition = bind_filter(parse(rule.filter), columns)
        masks = []
        for name, mask in rule.mask.items():
            ordinal = names.get(name.lower())
            if ordinal is not None:
                masks.append((ordinal, columns[ordinal], mask))
                if columns[ordinal].primary_key and not keeps_rows_apart(mask):
                    raise mismatch(
                        f"has {name} in its primary key: {mask} would make all keys the same; use hmac-sha256"
                    )
        masked_ones = {ordinal: masked_column(column, mask) for ordinal, column, mask in masks}
        columns = tuple(masked_ones.get(at, column) for at, column in enumerate(columns))
        computed, added = [], []
        for name, text in rule.compute.items():
            if name.lower() in names:
                raise mismatch(f"has a column {name} already, which the rule would compute")
            expression = bind(parse(text), columns)
            if expression.type.kind in (Kind.NULL, Kind.OTHER):
                raise mismatch(f"cannot have {name}: its value is {expression.type.kind.value}")
            computed.append(expression)
            added.append(column_for(name, expression.type))
    except BadExpression as error:
        raise mismatch(f"does not fit: {error.message}") from error
    kept = _kept(rule, columns, mismatch)
    if kept is not None:
        kept = (*kept, *range(len(columns), len(columns) + len(added)))
    columns = (*columns, *added)
    step = _Step(named.name, condition, tuple(masks), tuple(computed), kept, before)
    return step, columns if kept is None else tuple(columns[i] for i in kept)


def _kept(rule: Rule, columns: tuple[Column, ...], mismatch: Callable[[str], RuleMismatch]) -> tuple[int, ...] | None:
    """The ordinals that stay; None for all."""
    if rule.columns:
        chosen = {name.lower() for name in rule.columns}
        kept = tuple(at for at, column in enumerate(columns) if column.name.lower() in chosen)
    elif rule.drop:
        gone = {name.lower() for name in rule.drop}
        kept = tuple(at for at, column in enumerate(columns) if column.name.lower() not in gone)
    else:
        return None
    lost = [column.name for at, column in enumerate(columns) if column.primary_key and at not in kept]
    if lost:
        raise mismatch(
            f"has {', '.join(lost)} in its primary key, which the rule leaves out; a hash may stand for it (mask)"
        )
    if not kept:
        raise mismatch("has none of the columns that the rule keeps")
    return kept
