"""What the driver does before a batch, with a stand-in for Spark."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import NotSupported
from penstock.files.private import make_private_directory
from penstock.log.position import Position
from penstock.rules.settings import Rule
from penstock.rules.sql.rows import Selection
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.schema.pack import SchemaPacker
from penstock.schema.view import SchemaAt
from penstock.spark.job import Job
from penstock.spark.plan import EVERYBODY, PlannedRange, Routing
from penstock.spark.sql.before_batch import SqlBeforeBatches, sql_directory
from penstock.spark.sql.query import Made
from penstock.spark.sql.session import SparkSql
from tests.rules.rows import TABLE
from tests.rules.test_sql import SQL, StandIn

SHAPED = Rule.model_validate({"table": "shop.orders", "sql": SQL})


class Engine:
    """As far as it is asked here."""

    def sql(self) -> StandIn:
        made: Any = StandIn()
        made.known, made.lock = {}, threading.Lock()
        return made  # type: ignore[no-any-return]

    def in_group(self, _group: str) -> None: ...


@pytest.fixture
def sql(tmp_path: Path) -> SqlBeforeBatches:
    version = SettingsVersion(BEGINNING, 0, RowSettings((SHAPED,))).to_json()
    job = Job(str(tmp_path), "", "lake", "1", "1:0", "parquet", settings=(version,))
    return SqlBeforeBatches(Engine(), job)  # type: ignore[arg-type]


def ranges_at(*entries: int, routing: Routing = EVERYBODY) -> list[PlannedRange]:
    pack, _ = SchemaPacker([SchemaAt(Position(0, 0), TABLE)]).pack()
    found = []
    for entry in entries:
        at = Position(1, entry)
        found.append(PlannedRange(at, at, Position(1, entry + 4), 1, pack, (), routing=routing))
    return found


def test_a_row_without_a_value_stops_nothing_that_lies_before_it(
    sql: SqlBeforeBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches are under way, and the later one finds its row first."""
    bad = {20: Made("b", "no value", 3)}

    def run(_name: Any, _selected: Selection, ranges: Sequence[PlannedRange], _directory: Path) -> list[Made]:
        return [bad.get(one.start.entry_id, Made("a")) for one in ranges]

    monkeypatch.setattr(sql, "_run", run)

    def stops(*entries: int) -> list[Any]:
        with sql.of("", ranges_at(*entries)) as (made, _):
            return [one.sql.stops.get("shop.orders") for one in made if one.sql is not None]

    assert stops(15, 20) == [None, ("no value", 3)]
    assert stops(5, 10) == [None, None], "before the row, whichever batch was first"
    assert stops(25) == [("no value", 0)], "after it nothing is looked at"


def test_two_replays_from_the_same_position_keep_their_files_apart(
    sql: SqlBeforeBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables that were paused together and come back one after the other, while the batch of the first is still under way."""

    def run(_name: Any, _selected: Selection, ranges: Sequence[PlannedRange], directory: Path) -> list[Made]:
        make_private_directory(directory)
        path = directory / "made.arrow"
        path.touch()
        return [Made(str(path)) for _ in ranges]

    monkeypatch.setattr(sql, "_run", run)
    first, second = (sql.of("", ranges_at(10, routing=Routing(only=frozenset([one])))) for one in ("a", "b"))
    with second as (made, _):
        with first:
            pass
        assert made[0].sql is not None
        assert Path(made[0].sql.files["shop.orders"]).exists(), "the tasks of the second one still need it"
    assert not any(sql_directory(str(tmp_path), "lake").iterdir())


def test_a_spark_that_cannot_hand_rows_to_python_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark 3.5 asks for pandas' version with a module that Python 3.12 does not have any more."""
    from pyspark.sql.pandas import utils

    def missing() -> None:
        raise ModuleNotFoundError("No module named 'distutils'")

    monkeypatch.setattr(utils, "require_minimum_pandas_version", missing)
    context: Any = None
    with pytest.raises(NotSupported, match=r"rules with sql need .*distutils.*setuptools"):
        SparkSql(context)
