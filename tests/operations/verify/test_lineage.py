"""Which changes made a table what it is, whatever names it had."""

from __future__ import annotations

import pyarrow as pa

from penstock.log.position import Seq
from penstock.operations.verify.lineage import Lineage
from penstock.schema.catalog import Catalog
from penstock.schema.changes import SchemaChange
from penstock.schema.ddl import Statement, apply_ddl
from tests.schema.ddl.shop import table


class World:
    """A name has a row at each entry; statements come between them."""

    def __init__(self, *names: str) -> None:
        self.catalog = Catalog([table(name) for name in names])
        self.lineage = Lineage()

    def run(self, entry: int, sql: str) -> None:
        made = tuple(apply_ddl(Statement(sql, "shop"), self.catalog, entry))
        assert made and not any(one.parked for one in made)
        for one in made:
            before = self.catalog.find(one.schema, one.table)
            self.lineage.take(SchemaChange(one, Seq(1, entry, 0, 0).to_bytes(), entry, before, None, made))
        for one in made:
            self.catalog.take(one)

    def rows(self, name: str) -> list[str]:
        """Entries 0, 10, 20, … of every name, two files each."""

        def kept(key: tuple[str, str]) -> list[pa.Table]:
            entries = [list(range(0, 50, 10)), list(range(50, 100, 10))]
            return [
                pa.table({"_seq": [Seq(1, e, 0, 0).to_bytes() for e in each], "at": [f"{key[1]}{e}" for e in each]})
                for each in entries
            ]

        found = self.lineage.rows(("shop", name), kept)
        return [text for each in found for text in each.column("at").to_pylist()]


def test_a_table_that_was_never_changed_has_all() -> None:
    assert len(World("a").rows("a")) == 10


def test_a_renamed_table_brings_its_rows() -> None:
    world = World("a")
    world.run(25, "RENAME TABLE a TO b")
    assert world.rows("b") == ["a0", "a10", "a20", *(f"b{e}" for e in range(30, 100, 10))]
    world.run(45, "CREATE TABLE a (id int)")
    assert world.rows("a")[0] == "a50"
    world.run(55, "TRUNCATE b")
    assert world.rows("b") == [f"b{e}" for e in range(60, 100, 10)]


def test_names_that_are_traded() -> None:
    world = World("a", "b")
    world.run(15, "RENAME TABLE a TO x, b TO a, x TO b")
    assert world.rows("a")[:3] == ["b0", "b10", "a20"] and world.rows("b")[:3] == ["a0", "a10", "b20"]
    world.run(35, "RENAME TABLE a TO old, b TO a")
    assert world.rows("a")[:5] == ["a0", "a10", "b20", "b30", "a40"]
    assert world.rows("old")[:5] == ["b0", "b10", "a20", "a30", "old40"]


def test_a_dropped_database_takes_all() -> None:
    world = World("a", "b")
    world.run(5, "RENAME TABLE a TO c")
    world.run(15, "DROP DATABASE shop")
    world.run(25, "CREATE TABLE c (id int)")
    assert world.rows("c")[0] == "c30"


def test_rows_that_changed_without_events_are_not_compared() -> None:
    world = World("a", "b")
    world.run(5, "ALTER TABLE a ADD x int")
    assert world.lineage.unclear(("shop", "a")) is None
    world.run(15, "ALTER TABLE a ADD y int NOT NULL DEFAULT 5")
    assert world.lineage.unclear(("shop", "a")) is not None
    world.run(25, "RENAME TABLE a TO c")
    assert world.lineage.unclear(("shop", "c")) is not None and world.lineage.unclear(("shop", "a")) is None
    world.run(35, "TRUNCATE c")
    assert world.lineage.unclear(("shop", "c")) is None
    world.run(45, "ALTER TABLE b EXCHANGE PARTITION p WITH TABLE c")
    assert world.lineage.unclear(("shop", "b")) and world.lineage.unclear(("shop", "c"))


def test_rows_are_compared_again_once_the_columns_that_were_filled_are_gone() -> None:
    world = World("a")
    world.run(5, "ALTER TABLE a ADD x int NOT NULL, ADD y int DEFAULT 1")
    world.run(15, "ALTER TABLE a CHANGE x z int NOT NULL")
    world.run(25, "ALTER TABLE a DROP y")
    assert world.lineage.unclear(("shop", "a")) is not None
    world.run(35, "ALTER TABLE a DROP z")
    assert world.lineage.unclear(("shop", "a")) is None


def test_which_columns_cannot_be_compared() -> None:
    world = World("a")
    world.run(5, "ALTER TABLE a ADD x int NOT NULL DEFAULT 5, ADD y int")
    world.run(15, "ALTER TABLE a ADD z varchar(5), ADD d datetime, ADD e enum('a')")
    world.run(25, "ALTER TABLE a MODIFY z varchar(50), MODIFY y bigint, MODIFY e enum('a','b')")
    found = world.lineage.unclear(("shop", "a"))
    assert found is not None and found.columns == {"x"}
    world.run(35, "ALTER TABLE a MODIFY d datetime(3), MODIFY e enum('b','a')")
    found = world.lineage.unclear(("shop", "a"))
    assert found is not None and found.columns == {"x", "d", "e"}


def test_a_table_that_came_from_where_the_sink_does_not_look() -> None:
    world = World("a", "b")
    world.lineage = Lineage(lambda table: table.table != "a")
    world.run(5, "RENAME TABLE a TO c, b TO d")
    assert world.lineage.unclear(("shop", "c")) and not world.lineage.unclear(("shop", "d"))
