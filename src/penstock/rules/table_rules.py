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
from penstock.rules.holds import NamedRule
from penstock.rules.images import Images, Mask
from penstock.rules.masks import keeps_rows_apart, masked, masked_column
from penstock.rules.settings import MaskName, Rule, check_column_name
from penstock.rules.sql.rows import NO_SQL, BadSql, Selection, Sql, column_of, outcome, shaped
from penstock.schema.changes import OP_DELETE, OP_INSERT, OP_UPDATE
from penstock.schema.model import Column, TableSchema


class RuleMismatch(BadInput):
    """A rule cannot do with a table what it says."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A rule, bound. Ordinals are those of the columns that the steps before it made."""

    name: str
    filter: BoundExpression | None
    masks: tuple[tuple[int, Column, MaskName], ...]
    computed: tuple[BoundExpression, ...]
    kept: tuple[int, ...] | None
    columns_before: tuple[Column, ...]
    sql: Selection | None


class TableRules:
    """`columns` are those that the sink sees. Raises `RuleMismatch` if the rules do not fit the table, `NotAnalysed` where
    they have a `sql` that nobody here knows."""

    def __init__(self, rules: Sequence[NamedRule], table: TableSchema, key: bytes, sql: Sql = NO_SQL) -> None:
        self._key = key
        self._table = table.name
        self._sql = sql
        columns = table.columns
        steps: list[_Step] = []
        for named in rules:
            if named.rule.sql is not None and any(step.sql is not None for step in steps):
                raise RuleMismatch(f"{named.name}: {table.name} has a rule with sql already; write one SELECT")
            step, columns = _bound(named, columns, table.name, sql)
            steps.append(step)
        self._steps = tuple(steps)
        self.columns: tuple[Column, ...] = columns
        self.hides = any(step.masks for step in steps)  # something of the table is not for the sink's readers

    def selection(self) -> Selection | None:
        """The SELECT that rows go through; None without one."""
        return next((step.sql for step in self._steps if step.sql is not None), None)

    def apply(self, images: Images) -> tuple[Images, str, int]:
        """The rows as the sink sees them; why it stops, and at which row of those given, if a filter cannot be told: then
        the rows are those before it."""
        reason, stopped = "", len(images)
        origin = np.arange(len(images))
        for step in self._steps:
            if step.filter is not None:
                column, at = _untold(step.filter.columns, images)
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
            if step.sql is not None:
                images, rows, why, at = self._selected(step.name, step.sql, images)
                if why and at < len(origin):  # of no rows, none stops: what stopped the table was in front of them
                    reason, stopped = why, int(origin[at])
                origin = origin[rows]
        return images, reason, stopped

    def _selected(self, name: str, step: Selection, images: Images) -> tuple[Images, npt.NDArray[np.int64], str, int]:
        """The rows that the statement makes, and which they were; why it stops, and at which row, if it does."""
        plan = step.plan
        made = self._sql.rows(self._table, step, images) if plan.needs_spark else outcome(images, plan, None, 0)
        at, reason = len(images), ""
        if made.reason:
            at, reason = made.stopped, f"{name}: {made.reason}"
        column, untold = _untold(plan.where or (), images)
        if column is not None and untold < at:
            at = untold
            reason = (
                f"{name}: the server logged a row without column {step.columns[column].name}, "
                "which the WHERE reads (binlog_row_image must be FULL)"
            )
        seen, rows = shaped(images, plan, made)
        before = int(np.searchsorted(rows, at))
        return seen.slice(before), rows[:before], reason, at

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


def _untold(columns: Sequence[int], images: Images) -> tuple[int | None, int]:
    """The first row whose filter, which reads these columns, cannot be told, because an image lacks one; and that column."""
    first, found = len(images), None
    for present, there in ((images.in_before, images.op != OP_INSERT), (images.in_after, images.op != OP_DELETE)):
        if present is None:
            continue
        for column in columns:
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


def _bound(named: NamedRule, columns: tuple[Column, ...], table: str, sql: Sql) -> tuple[_Step, tuple[Column, ...]]:
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
    columns = columns if kept is None else tuple(columns[i] for i in kept)
    selected = None
    if rule.sql is not None:
        try:
            selected = Selection(rule.sql, columns, sql.plan(rule.sql, columns))
            columns = _selected_columns(selected)
        except (BadSql, ValueError) as error:
            raise mismatch(f"does not fit: {getattr(error, 'message', error)}") from error
    return _Step(named.name, condition, tuple(masks), tuple(computed), kept, before, selected), columns


def _selected_columns(step: Selection) -> tuple[Column, ...]:
    """The columns of the result. Raises `BadSql`, or `ValueError` for a name."""
    made = step.plan.columns
    names = [column.name.lower() for column in made]
    for name in names:
        if names.count(name) > 1:
            raise BadSql(
                f"the SELECT makes {name} twice; name one of them otherwise, or leave it out: * EXCEPT ({name})"
            )
    for column in made:
        if column.source is None:
            check_column_name(column.name)
    for ordinal, key in enumerate(step.columns):
        if not key.primary_key:
            continue
        kept = next((one for one in made if one.name.lower() == key.name.lower()), None)
        if kept is None or kept.source != ordinal:
            raise BadSql(
                f"{key.name} is in the primary key, and the SELECT must have it as it is, under its name: rows are found by "
                "it; a hash may stand for it (mask)"
            )
    return tuple(column_of(column, step.columns) for column in made)


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
