"""`sql:` on the way of the rows, with a stand-in for Spark: numbers of images, what comes back, versions, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.errors import Terminal
from penstock.log.position import Position
from penstock.rules.images import Images
from penstock.rules.passage import Passage
from penstock.rules.rules import Rules
from penstock.rules.settings import Rule
from penstock.rules.sql.rows import (
    BadSql,
    NotAnalysed,
    Selection,
    Sql,
    SqlColumn,
    SqlPlan,
    SqlRows,
    image_count,
    outcome,
    physical,
    relation_rows,
)
from penstock.rules.table_rules import RuleMismatch
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import RowSettings, SettingsVersion
from penstock.schema.changes import SchemaChange
from penstock.schema.model import Column, TableSchema
from penstock.schema.view import SchemaView
from penstock.spark.sql.worker import stopped
from tests.rules.reference import Row
from tests.rules.rows import NAMES, TABLE, batch_of, rows_of

SQL = "SELECT id, n * 2 AS twice FROM this WHERE n > 5"
PLAN = SqlPlan((SqlColumn("id", 0, "bigint", (0,)), SqlColumn("twice", None, "int", (1,))), (1,))


class StandIn(Sql):
    """Does what `SQL` says, by Arrow."""

    def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
        return PLAN

    def rows(self, table: str, selection: Selection, images: Images) -> SqlRows:
        given = relation_rows(images, selection.columns, selection.plan, 7)
        return outcome(images, selection.plan, answer(given), 7)


def answer(given: pa.Table) -> pa.Table:
    there = given.filter(pc.greater(given.column("n"), pa.scalar(5, pa.int32())))
    return pa.table({"c0": there.column("_penstock_row"), "c1": pc.multiply(there.column("n"), 2)})


def image(number: int) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "id": number, "n": number}


ROWS = [
    Row("I", None, image(9)),
    Row("U", image(1), image(8)),
    Row("U", image(8), image(1)),
    Row("D", image(6), None),
    Row("U", image(6), image(7)),
    Row("U", image(1), image(2)),
]


def rules(*given: dict[str, Any], sql: Sql | None = None) -> Rules:
    made = [Rule.model_validate({"table": "shop.orders", **one}) for one in given]
    return Rules(made, sql=sql or StandIn())


def test_an_update_that_crosses_the_where_is_an_insert_or_a_delete() -> None:
    seen, stop = rules({"sql": SQL}).rows(batch_of(ROWS))
    assert stop is None
    assert [(row.op, row.before, row.after) for row in rows_of(seen)] == [
        ("I", None, {"id": 9, "twice": 18}),
        ("I", None, {"id": 8, "twice": 16}),
        ("D", {"id": 8, "twice": 16}, None),
        ("D", {"id": 6, "twice": 12}, None),
        ("U", {"id": 6, "twice": 12}, {"id": 7, "twice": 14}),
    ]


def test_a_stop_in_front_of_rows_that_a_filter_leaves_out() -> None:
    """The table has stopped in an earlier batch of the range; of this one nothing comes to the SELECT."""

    class Stopped(StandIn):
        def rows(self, table: str, selection: Selection, images: Images) -> SqlRows:
            return stopped(images, selection.plan, "no value", 0)

    seen, stop = rules({"filter": "n > 100", "sql": SQL}, sql=Stopped()).rows(batch_of(ROWS))
    assert len(seen) == 0 and stop is None
    seen, stop = rules({"filter": "n = 6", "sql": SQL}, sql=Stopped()).rows(batch_of(ROWS))
    assert len(seen) == 0 and stop is not None and stop.seq == batch_of(ROWS).seq[3].tobytes()


def test_numbers_do_not_hang_on_how_rows_are_cut_into_batches() -> None:
    whole = Images.of(batch_of(ROWS))
    parts, first = [], 0
    for start, stop in ((0, 1), (1, 4), (4, 6)):
        part = Images.of(batch_of(ROWS).slice(start, stop))
        parts.append(relation_rows(part, TABLE.columns, PLAN, first))
        first += image_count(part)
    assert pa.concat_tables(parts).combine_chunks() == relation_rows(whole, TABLE.columns, PLAN, 0).combine_chunks()
    assert first == image_count(whole) == 10


def test_only_what_is_needed_goes_to_spark() -> None:
    given = relation_rows(Images.of(batch_of(ROWS)), TABLE.columns, PLAN, 0)
    assert [name for name in NAMES if given.column(name).null_count < given.num_rows] == ["n"]


@pytest.mark.parametrize("wrong", ["another row", "doubled", "swapped", "missing"])
def test_a_result_of_other_rows_is_never_passed_on(wrong: str) -> None:
    images = Images.of(batch_of(ROWS))
    result = answer(relation_rows(images, TABLE.columns, PLAN, 0))
    plan = PLAN
    if wrong == "another row":
        images = replace(images, seq=images.seq[::-1])
    elif wrong == "doubled":
        result = pa.concat_tables([result.slice(0, 1), result])
    elif wrong == "swapped":
        result = result.take([1, 0, 2, 3, 4])
    else:
        plan = replace(PLAN, where=None)
    with pytest.raises(Terminal):
        outcome(images, plan, result, 0)


def test_a_second_sql_for_a_table_is_refused() -> None:
    with pytest.raises(RuleMismatch, match="has a rule with sql already"):
        rules({"sql": SQL}, {"sql": SQL}).table(TABLE)


def test_without_spark_nobody_knows_its_columns() -> None:
    with pytest.raises(NotAnalysed):
        rules({"sql": SQL}, sql=Sql()).table(TABLE)


def test_a_changed_statement_is_a_new_version_of_the_table() -> None:
    """Known without Spark; what its readers are told is not."""
    other = "SELECT id, n * 2 AS twice FROM this WHERE n > 6"
    given = []
    for number, statement in enumerate((None, SQL, SQL, other)):
        rule = {"sql": statement} if statement else {"filter": "n > 1"}
        made = RowSettings((Rule.model_validate({"table": "shop.orders", **rule}),))
        given.append(SettingsVersion(Position(number, 0), 100 * number, SettingsVersion.from_json(SettingsVersion(Position(0, 0), 0, made).to_json()).settings))  # fmt: skip
    assert [one.version_of(TABLE) for one in VersionedRules(given).all] == [7, 100, 100, 300]
    (told,) = Passage(VersionedRules(given[:2], sql=StandIn()).newest, [("shop", "orders")], SchemaView()).begin(
        [TABLE]
    )
    assert isinstance(told, SchemaChange)
    assert "ADD COLUMN `twice` int" in told.table.query and "DROP COLUMN `s`" in told.table.query


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (pa.array([True, None]), [1, None]),
        (pa.array([1.5, float("nan"), float("inf")]), [1.5, None, None]),
        (pa.array([0, -800_000], pa.int32()).view(pa.date32()), [1970 << 9 | 1 << 5 | 1, None]),
        (pa.array([0, 1], pa.int64()).view(pa.timestamp("us", "UTC")), [None, 1]),
        (pa.array([1_000_001], pa.int64()).view(pa.timestamp("us")), [((1970 * 13 + 1) << 22 | 1 << 17 | 1) << 24 | 1]),
    ],
)
def test_values_of_spark_in_their_physical_form(value: Any, wanted: list[Any]) -> None:
    assert physical(value).to_pylist() == wanted


def test_a_ddl_that_the_statement_does_not_outlive_stops_the_table() -> None:
    class Strict(StandIn):
        def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
            if not any(column.name == "n" for column in columns):
                raise BadSql("[UNRESOLVED_COLUMN] `n` cannot be resolved")
            return PLAN

    after = replace(TABLE, version=9, columns=tuple(column for column in TABLE.columns if column.name != "n"))
    made = rules({"sql": SQL}, sql=Strict())
    (stop,) = made.apply(SchemaChange(after, b"\1" * 24, 9, TABLE, together=(after,), needed=(TABLE,)))
    assert isinstance(stop, SchemaChange) and stop.table.parked
    assert "has no column n any more, which the rule names" in stop.table.reason and stop.table.reason.startswith(
        "rules: rule 1 (shop.orders)"
    )
    (other,) = made.apply(SchemaChange(after, b"\1" * 24, 9, None, together=(after,)))
    assert "`n` cannot be resolved" in other.table.reason, "as it is made"
    longer: TableSchema = replace(TABLE, version=9, columns=(*TABLE.columns, Column("more", "int")))
    (passed,) = made.apply(SchemaChange(longer, b"\1" * 24, 9, TABLE, together=(longer,), needed=(TABLE,)))
    assert [column.name for column in passed.table.columns] == ["id", "twice"]
