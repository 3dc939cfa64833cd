"""What of a new log a sink is taken to have, where rules shape its rows: the demo's log, and no server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.changefeed.recovery_point import RecoveryPoint
from penstock.delivery.storage.layout import layout_of
from penstock.delivery.storage.place import open_place
from penstock.encode import open_format
from penstock.files import REAL_FILES
from penstock.log.position import Position, Seq
from penstock.operations.config.model import changefeed_settings
from penstock.operations.recover import recover as steps
from penstock.operations.recover.contents import Contents, TableAtSink
from penstock.operations.recover.matching import Matching, _Table
from penstock.operations.recover.points import SinkPoint
from penstock.rules.rules import Rules
from penstock.rules.sql.rows import SqlColumn, SqlPlan
from penstock.rules.versions import RowSettings
from penstock.schema.model import Column
from penstock.sources.position import SourcePosition
from penstock.spark.sql.local import LocalSql
from tests.encode.test_poison import batch
from tests.operations.recover.world import World


class Chosen(LocalSql):
    """As Spark understands a statement that only chooses the first column; no JVM is needed for its rows."""

    def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
        return SqlPlan((SqlColumn(columns[0].name, 0, "", (0,)),))


def test_a_sink_with_sql_is_matched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = {"table": "shop.orders", "sql": "SELECT id FROM this"}
    world = World(tmp_path, {"type": "demo", "changes": 50}, {"lake": {"format": "parquet", "rules": [rule]}})
    world.capture()
    settings = RowSettings.of(changefeed_settings(world.config, "lake"), None)
    place = Position(1, 0)
    point = RecoveryPoint(1, SourcePosition("f", 4), "log", place, place, settings)
    files, fmt = open_place(f"file://{tmp_path}/lake", REAL_FILES), open_format("parquet", {})
    sink = SinkPoint("lake", files, layout_of("parquet"), fmt, "parquet", settings, False, point, 0)
    monkeypatch.setattr(steps, "LocalSql", Chosen)
    contents = Contents(tables={("shop", "orders"): TableAtSink(changes=2)})
    progress, wrong = steps._match(world.config, [sink], sink, {"lake": contents})
    assert not wrong and ("shop", "orders") in progress["lake"]


def test_before_its_point_a_sink_has_the_last_row_of_all_tables_that_are_one(tmp_path: Path) -> None:
    """Their rows come table by table: those of the second one may end before those of the first."""
    rows = batch([1, 2, 1, 2])
    name = (rows.table.schema, rows.table.table)
    matching = Matching(Rules(()), open_format("csv", {}), Contents(), Seq(1, 9, 0, 0))
    for one in (rows, rows.slice(0, 2)):
        matching._take_rows(name, _Table(0, TableAtSink()), one)
    assert matching._found.progress == {name: Seq(1, 3, 0, 0)}
