"""What the driver does before a batch, with a stand-in for Spark."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.log.position import Position
from penstock.rules.settings import Rule
from penstock.rules.sql.rows import Selection
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.schema.pack import SchemaPacker
from penstock.schema.view import SchemaAt
from penstock.spark.job import Job
from penstock.spark.plan import PlannedRange
from penstock.spark.sql.before_batch import SqlBeforeBatches
from penstock.spark.sql.query import Made
from tests.rules.rows import TABLE
from tests.rules.test_sql import SQL, StandIn


class Engine:
    """As far as it is asked here."""

    def sql(self) -> StandIn:
        made: Any = StandIn()
        made.known, made.lock = {}, threading.Lock()
        return made  # type: ignore[no-any-return]

    def in_group(self, _group: str) -> None: ...


def test_a_row_without_a_value_stops_nothing_that_lies_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two batches are under way, and the later one finds its row first."""
    settings = RowSettings((Rule.model_validate({"table": "shop.orders", "sql": SQL}),))
    version = SettingsVersion(BEGINNING, 0, settings).to_json()
    job = Job(str(tmp_path), "", "lake", "1", "1:0", "parquet", settings=(version,))
    sql = SqlBeforeBatches(Engine(), job)  # type: ignore[arg-type]
    pack, _ = SchemaPacker([SchemaAt(Position(0, 0), TABLE)]).pack()
    bad = {20: Made("b", "no value", 3)}

    def run(_name: Any, _selected: Selection, ranges: Sequence[PlannedRange], _directory: Path) -> list[Made]:
        return [bad.get(one.start.entry_id, Made("a")) for one in ranges]

    monkeypatch.setattr(sql, "_run", run)

    def stops(first: int, *more: int) -> list[Any]:
        positions = [Position(1, entry) for entry in (first, *more)]
        with sql.of("", [PlannedRange(at, at, Position(1, at.entry_id + 4), 1, pack, ()) for at in positions]) as (
            made,
            _,
        ):
            return [one.sql.stops.get("shop.orders") for one in made if one.sql is not None]

    assert stops(15, 20) == [None, ("no value", 3)]
    assert stops(5, 10) == [None, None], "before the row, whichever batch was first"
    assert stops(25) == [("no value", 0)], "after it nothing is looked at"
