"""DDL across dispatchers: what trades names, copies or drops comes to the sink in an order that a reader can follow at any
moment."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

from penstock.clock import ManualClock
from penstock.commit_ts import commit_ts_of
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.payload import Payload, dispatcher_id
from penstock.files import REAL_FILES
from penstock.log.position import Seq
from penstock.objects import DirectoryObjects
from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement
from tests.delivery.rig import (
    CHANGEFEED,
    START_MS,
    DeliveryWorld,
    Row,
    data_payload,
    ddl_payload,
    read_tables,
    stage_all,
    table_schema,
    work,
)
from tests.schema.mirror import forward


class RecordingObjects(DirectoryObjects):
    """Remembers what was put, in order."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), root, REAL_FILES)
        self.puts: list[str] = []

    def put(self, name: str, data: object, *args: object, **given: object) -> None:  # type: ignore[override]
        super().put(name, data, *args, **given)  # type: ignore[arg-type]
        self.puts.append(name)


class World:
    def __init__(self, tmp_path: Path) -> None:
        self.objects = RecordingObjects(tmp_path)
        self.clock = ManualClock()
        self.rig = DeliveryWorld(tmp_path, store=self.objects, clock=self.clock)
        self.delivery: ChangefeedDelivery = self.rig.open()
        self.incarnation = self.rig.begin(self.delivery, "r1")
        self.catalog = Catalog([table_schema(name, 5) for name in ("orders", "items", "idle")])
        self.at = 0

    def rows(self, table: str, count: int = 2, version: int = 5) -> Payload:
        first, self.at = self.at, self.at + count
        return data_payload(table, first, self.at - 1, version=version)

    def ddl(self, sql: str) -> list[Payload]:
        entry, self.at = self.at, self.at + 1
        ts = commit_ts_of(START_MS) + entry
        before = list(self.catalog.tables())
        made = forward(Statement(sql, "shop"), self.catalog, ts)
        named = {table.name for table in made} | {table.other for table in made}
        needed = [table.to_json() for table in before if table.name in named]
        return [
            replace(
                ddl_payload(Row(Seq(1, entry, 0, 0), ts, table, ddl=True)),
                dispatcher=dispatcher_id(CHANGEFEED, table.schema, table.table),
                schema=table.schema,
                table_schema=json.dumps(needed),
            )
            for table in made
        ]

    def publish(self, *payloads: Payload) -> None:
        start = payloads[0].first_seq.entry_id
        named = stage_all(self.delivery, "r1", start, self.at - 1, payloads)
        assert self.delivery.publish("r1", self.incarnation, [named]) == 1

    def files(self) -> list[str]:
        """Schema files and data files in the order in which they came, as `table:S` and `table:D`."""
        kinds = [(name.split("/"), name) for name in self.objects.puts if not name.endswith("CDC.index")]
        return [f"{parts[1] if len(parts) > 3 else parts[0]}:{'S' if 'schema_' in name else 'D'}" for parts, name in kinds if "/" in name]  # fmt: skip

    def query_of(self, table: str) -> list[str]:
        found = sorted(
            (self.rig.root / "shop" / table / "meta").glob("schema_*"), key=lambda p: int(p.name.split("_")[1])
        )
        return [json.loads(path.read_text())["Query"] for path in found]


def test_a_rename_drains_both_names_before_its_statement(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = [world.rows("orders"), world.rows("items")]
    rename = world.ddl("RENAME TABLE orders TO old, items TO orders")
    version = rename[0].version
    world.publish(*before, *rename, world.rows("orders", version=version), world.rows("old", version=version))
    work(world.delivery)
    world.clock.sleep(60)
    work(world.delivery)
    files = world.files()
    assert sorted(files[:5]) == ["items:D", "items:S", "orders:D", "orders:S", "shop:S"]
    assert sorted(files[5:7]) == ["old:S", "orders:S"] and sorted(files[7:]) == ["old:D", "orders:D"]
    assert world.query_of("old") == ["RENAME TABLE `shop`.`orders` TO `shop`.`old`, `shop`.`items` TO `shop`.`orders`"]
    read_tables(tmp_path)


def test_a_name_that_was_left_is_taken_again_after_the_statement(tmp_path: Path) -> None:
    world = World(tmp_path)
    rows = world.rows("orders")
    rename = world.ddl("RENAME TABLE orders TO zz")
    create = world.ddl("CREATE TABLE orders (c0 int)")
    world.publish(rows, *rename, *create)
    work(world.delivery)
    assert [name for name in world.files() if name.endswith(":S")] == ["shop:S", "orders:S", "zz:S", "orders:S"]
    read_tables(tmp_path)


def test_a_database_waits_for_all_its_tables_and_they_for_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    rows = [world.rows("orders"), world.rows("items")]
    drop = world.ddl("DROP DATABASE shop")
    again = world.ddl("CREATE DATABASE shop")
    create = world.ddl("CREATE TABLE orders (c0 int)")
    world.publish(*rows, *drop, *again, *create, world.rows("orders", version=create[0].version))
    work(world.delivery)
    world.clock.sleep(60)
    work(world.delivery)
    files = world.files()
    assert sorted(files[:5]) == ["items:D", "items:S", "orders:D", "orders:S", "shop:S"]
    assert files[5:] == ["shop:S", "shop:S", "orders:S", "orders:D"]
    assert {name: len(lines) for name, lines in read_tables(tmp_path).items()} == {"orders": 4, "items": 2}


def test_a_new_database_comes_before_its_first_table(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = [*world.ddl("CREATE DATABASE zoo"), *world.ddl("CREATE TABLE zoo.a (c0 int)")]
    world.publish(*made)
    assert world.delivery.writer is not None
    other = world.delivery.writer.dispatchers[made[1].dispatcher]
    assert other.barriers, "the table waits for the database"
    work(world.delivery)
    assert [name for name in world.files() if name.endswith(":S")] == ["zoo:S", "a:S"]
    assert not other.barriers


def test_a_database_that_the_sink_was_not_told_of_is_created_for_its_table(tmp_path: Path) -> None:
    """It takes zoo.a and zoo.b alone, or began after CREATE DATABASE: readers could not create the table."""
    world = World(tmp_path)
    world.ddl("CREATE DATABASE zoo")
    made = [*world.ddl("CREATE TABLE zoo.a (c0 int)"), *world.ddl("CREATE TABLE zoo.b (c0 int)")]
    world.publish(*made)
    work(world.delivery)
    files = [name for name in world.files() if name.endswith(":S")]
    assert files[0] == "zoo:S" and {*files} == {"zoo:S", "a:S", "b:S"}
    found = [json.loads(file.read_text()) for file in (tmp_path / "zoo" / "meta").glob("schema_*")]
    assert {(one["Query"], one["Type"]) for one in found} == {("CREATE DATABASE IF NOT EXISTS `zoo`", 1)}
    assert min(one["TableVersion"] for one in found) < made[0].version


def test_a_copy_comes_between_the_statements_of_its_model(tmp_path: Path) -> None:
    world = World(tmp_path)
    first = world.ddl("ALTER TABLE orders ADD x int")
    copy = world.ddl("CREATE TABLE aa LIKE orders")
    second = world.ddl("ALTER TABLE orders ADD y int")
    world.publish(*first, *copy, *second)
    work(world.delivery)
    assert [name for name in world.files() if name.endswith(":S")] == ["shop:S", "orders:S", "orders:S", "aa:S", "orders:S"]  # fmt: skip
    assert world.query_of("orders")[0].startswith("CREATE TABLE IF NOT EXISTS `shop`.`orders` (`c0` int")
    read_tables(tmp_path)


def test_with_threads(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.delivery.close(0)
    world.delivery = world.rig.open(writers=3)
    world.incarnation = world.rig.begin(world.delivery, "r1")
    random_ = random.Random(5)
    names = ["orders", "items", "idle"]
    versions = dict.fromkeys(names, 5)
    payloads: list[Payload] = []
    for n in range(40):
        if n % 5 == 4:
            random_.shuffle(names)
            a, b, c = names
            ddl = world.ddl(f"RENAME TABLE {a} TO tmp{n}, {b} TO {a}, {c} TO {b}, tmp{n} TO {c}")
            versions |= {payload.table: payload.version for payload in ddl if payload.table in versions}
            payloads += ddl
        else:
            name = random_.choice(names)
            payloads.append(world.rows(name, version=versions[name]))
    world.publish(*payloads)
    world.delivery.flush(30)
    read_tables(tmp_path)
    world.delivery.close(0)
