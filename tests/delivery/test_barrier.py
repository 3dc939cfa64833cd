"""A DDL that concerns several tables: everybody drains at once, nobody holds a thread, and a failure ends the wait."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.commit_ts import commit_ts_of
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.payload import Payload, dispatcher_id
from penstock.errors import PenstockError, Terminal, Unavailable
from penstock.files import REAL_FILES, Buffer
from penstock.log.position import Seq
from penstock.objects import DirectoryObjects
from penstock.schema.model import DdlType, TableSchema
from tests.delivery.rig import (
    CHANGEFEED,
    START_MS,
    DeliveryWorld,
    Row,
    data_payload,
    ddl_payload,
    id_of,
    stage_all,
    table_schema,
    work,
)

TABLES = ("a", "b", "c", "d")
DATABASE = dispatcher_id(CHANGEFEED, "shop", "")


class Journal(DirectoryObjects):
    """Remembers the order in which files appear. `broken` names a table whose data cannot be written."""

    def __init__(self, root: Path, broken: str = "-", error: PenstockError | None = None) -> None:
        super().__init__(str(root), root, REAL_FILES)
        self.names: list[str] = []
        self.broken, self.error = broken, error or Unavailable("away")

    def put(self, name: str, data: Buffer) -> None:
        if name.startswith(f"shop/{self.broken}/") and "/CDC" in name:
            raise self.error
        super().put(name, data)
        self.names.append(name)

    def events(self) -> list[tuple[str, str]]:
        """(table, what): rows of a table, its schema file, or that of the database; not the one that the first table without
        a CREATE brings."""
        found = []
        for name in [name for name in self.names if not name.startswith("shop/meta/schema_4_")]:
            parts = name.split("/")
            if name.endswith(".json") and parts[0] == "shop":
                table = parts[1] if parts[1] != "meta" else ""
                found.append((table, "ddl" if "schema_" in name else "rows"))
        return found


def drop_database(entry: int, kind: DdlType = DdlType.DROP_SCHEMA) -> Payload:
    ts = commit_ts_of(START_MS) + entry
    schema = TableSchema("shop", "", ts, (), "DROP DATABASE shop", kind)
    made = ddl_payload(Row(Seq(1, entry, 0, 0), ts, schema, ddl=True))
    return replace(made, dispatcher=DATABASE, table="")


def table_ddl(table: str, entry: int, kind: DdlType = DdlType.DROP_TABLE) -> Payload:
    ts = commit_ts_of(START_MS) + entry
    schema = replace(table_schema(table, ts), ddl_type=kind, query="RENAME")
    return ddl_payload(Row(Seq(1, entry, 0, 0), ts, schema, ddl=True))


def later_rows(table: str, first: int, last: int) -> Payload:
    return data_payload(table, first, last)


def started(world: DeliveryWorld, payloads: list[Payload], last: int, *, writers: int) -> ChangefeedDelivery:
    delivery = world.open(writers=writers)
    incarnation = world.begin(delivery, "r")
    delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, last, payloads)])
    return delivery


def test_four_tables_in_a_barrier_on_one_thread(tmp_path: Path) -> None:
    """With a call that blocks a thread, this would wait for ever."""
    from penstock.clock import SYSTEM_CLOCK

    store = Journal(tmp_path)
    world = DeliveryWorld(tmp_path, store=store, clock=SYSTEM_CLOCK)
    before = [data_payload(table, 0, 2) for table in TABLES]
    after = [later_rows(table, 4, 5) for table in TABLES]
    delivery = started(world, [*before, drop_database(3), *after], 5, writers=1)
    delivery.flush(60)
    at = store.events().index(("", "ddl"))
    assert sorted(store.events()[:at]) == sorted([(t, k) for t in TABLES for k in ("ddl", "rows")])
    assert sorted(store.events()[at + 1 :]) == [(t, "rows") for t in TABLES]
    assert all(world.keeper.facts[id_of(t)].progress == Seq(1, 5, 0, 0) for t in TABLES)
    assert delivery.close(10)


@pytest.mark.parametrize("writers", [1, 2, 4])
def test_many_barriers_at_once(tmp_path: Path, writers: int) -> None:
    from penstock.clock import SYSTEM_CLOCK

    store = Journal(tmp_path)
    world = DeliveryWorld(tmp_path, store=store, clock=SYSTEM_CLOCK)
    payloads: list[Payload] = []
    for turn in range(6):
        at = turn * 4
        payloads += [data_payload(table, at, at + 1) for table in TABLES]
        payloads += [drop_database(at + 2)] if turn % 2 else [table_ddl(t, at + 2) for t in TABLES]
    delivery = started(world, payloads, 23, writers=writers)
    delivery.flush(60)
    order = [table for table, what in store.events() if what == "rows" or table == ""]
    turns = "".join("|" if not table else "r" for table in order)
    assert turns.count("|") == 3 and [len(part) for part in turns.split("|")] == [8, 8, 8, 0]
    assert delivery.close(10)


def test_who_waits_at_a_barrier_costs_nothing(tmp_path: Path) -> None:
    """A thousand tables that wait for one are woken by it, not by a timer."""
    store = Journal(tmp_path, "slow")
    world = DeliveryWorld(tmp_path, store=store)
    tables = [f"t{n}" for n in range(1000)]
    rows = [data_payload(table, 0, 0) for table in (*tables, "slow")]
    delivery = started(world, [*rows, drop_database(1), data_payload("t0", 2, 2)], 2, writers=0)
    work(delivery)
    writer = delivery.writer
    assert writer is not None
    states = [each["state"] for each in delivery.status()["dispatchers"].values()]
    assert states.count("draining") == 1001 and states.count("retrying") == 1
    turns = 0
    for _ in range(100):
        world.clock.sleep(1)
        while writer.step():
            turns += 1
    assert turns <= 60  # those of the one that is tried again
    store.broken = "-"
    world.clock.sleep(100)
    work(delivery)
    delivery.flush()
    assert store.events()[-1] == ("t0", "rows") and ("", "ddl") in store.events()


def test_the_keeper_says_not_yet(tmp_path: Path) -> None:
    """The dispatcher waits in a phase of its own; its thread works for others."""
    world = DeliveryWorld(tmp_path)
    world.keeper.not_yet = 3
    payloads = [data_payload("a", 0, 1), table_ddl("a", 2), data_payload("b", 3, 4)]
    delivery = started(world, payloads, 4, writers=0)
    work(delivery)
    assert delivery.status()["dispatchers"][id_of("a")]["state"] == "draining"
    world.clock.sleep(60)
    work(delivery)
    assert world.keeper.facts[id_of("b")].progress == Seq(1, 4, 0, 0)
    assert world.keeper.facts[id_of("a")].progress == Seq(1, 1, 0, 0)
    for _ in range(3):
        world.clock.sleep(1)
        work(delivery)
    assert world.keeper.facts[id_of("a")].progress == Seq(1, 2, 0, 0)
    delivery.flush()


def test_callbacks_of_rows_come_before_the_arrival(tmp_path: Path) -> None:
    store = Journal(tmp_path)
    world = DeliveryWorld(tmp_path, store=store)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    seen: list[str] = []
    named = stage_all(delivery, "r", 0, 3, [data_payload("a", 0, 2), drop_database(3)])
    staging: Any = delivery._staging
    rows, ddl = staging.peek(named)
    rows.post_flush = (lambda: seen.append("rows"),)
    ddl.post_flush = (lambda: seen.append("ddl"),)
    delivery.publish("r", incarnation, [named])
    barrier = delivery.writer.dispatchers[id_of("a")].barriers["1:3:0:0"] if delivery.writer else None
    assert barrier is not None
    arrive = barrier.arrive
    barrier.arrive = lambda who: (seen.append("arrived" if who == id_of("a") else "database"), arrive(who))[1]  # type: ignore[method-assign]
    work(delivery)
    assert [each for each in seen if each != "database"] == ["rows", "arrived", "ddl"]


def test_a_table_that_fails_ends_the_drain(tmp_path: Path) -> None:
    """Neither a drain that hangs nor a DDL that goes anyway."""
    store = Journal(tmp_path, "b", PenstockError("broken for good"))
    world = DeliveryWorld(tmp_path, store=store)
    before = [data_payload(table, 0, 2) for table in TABLES]
    after = [later_rows(table, 4, 5) for table in TABLES]
    delivery = started(world, [*before, drop_database(3), *after], 5, writers=0)
    work(delivery)
    assert ("", "ddl") not in store.events()
    stopped = {d.table: str(d.stopped) for d in delivery.writer.stopped()} if delivery.writer else {}
    assert set(stopped) == {"", *TABLES}
    assert "DROP DATABASE shop" in stopped["a"] and "broken for good" in stopped["a"]
    assert delivery.spool.bytes == 0
    with pytest.raises(PenstockError, match="broken for good"):
        delivery.flush()


def test_what_stops_at_a_statement_says_so_once_and_names_it(tmp_path: Path) -> None:
    """Also one without a text of its own: what rules change is told to readers in other words. A message had '' for it, the
    name of the sink twice, and the hint as often as tables passed it on."""
    store = Journal(tmp_path, "b", Terminal("broken for good", hint="mend it"))
    world = DeliveryWorld(tmp_path, store=store)
    statement = [_without_text(table_ddl(table, 3, DdlType.RENAME_TABLE)) for table in ("a", "b")]
    delivery = started(world, [*(data_payload(table, 0, 2) for table in ("a", "b")), *statement], 3, writers=0)
    work(delivery)
    assert delivery.writer is not None
    stopped = {d.table: d.stopped for d in delivery.writer.stopped()}
    said = str(stopped["a"])
    assert said == "a statement that changes shop.a cannot be delivered: broken for good (mend it)"
    with pytest.raises(PenstockError) as raised:
        delivery.flush()
    assert raised.value.message.startswith("shop.") and CHANGEFEED not in raised.value.message


def _without_text(payload: Payload) -> Payload:
    body = {**json.loads(bytes(payload.body)), "query": ""}
    return replace(payload, body=json.dumps(body).encode())


def test_a_statement_on_which_tables_do_not_depend_goes_on_without_the_failed_one(tmp_path: Path) -> None:
    store = Journal(tmp_path, "b", PenstockError("broken for good"))
    world = DeliveryWorld(tmp_path, store=store)
    before = [data_payload(table, 0, 2) for table in TABLES]
    after = [later_rows(table, 4, 5) for table in TABLES]
    charset = drop_database(3, DdlType.MODIFY_SCHEMA_CHARSET)
    delivery = started(world, [*before, charset, *after], 5, writers=0)
    world.clock.sleep(100)
    work(delivery)
    assert delivery.writer is not None
    assert [d.table for d in delivery.writer.stopped()] == ["b"]
    at = store.events().index(("", "ddl"))
    assert {t for t, what in store.events()[at:] if what == "rows"} == {"a", "c", "d"}


def test_a_new_run_ends_every_wait(tmp_path: Path) -> None:
    store = Journal(tmp_path, "b")
    world = DeliveryWorld(tmp_path, store=store)
    payloads = [*(data_payload(table, 0, 2) for table in TABLES), drop_database(3)]
    delivery = started(world, payloads, 3, writers=0)
    work(delivery)
    assert {d["state"] for d in delivery.status()["dispatchers"].values()} == {"draining", "retrying"}
    store.broken = "-"
    incarnation = world.begin(delivery, "r2")
    facts = world.keeper.dispatchers("")
    again = [p for p in payloads if (progress := facts[p.dispatcher].progress) is None or p.last_seq > progress]
    delivery.publish("r2", incarnation, [stage_all(delivery, "r2", 0, 3, again)])
    for _ in range(3):
        world.clock.sleep(100)
        work(delivery)
    delivery.flush()
    assert store.events()[-1] == ("", "ddl")


def test_rows_at_or_after_a_ddl_in_front_of_its_marker_are_refused(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    payloads = [data_payload("a", 0, 5), drop_database(3)]
    with pytest.raises(PenstockError, match="which would drain them"):
        delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 5, payloads)])
    assert world.keeper.calls == []


def test_a_schema_that_cannot_be_read_is_refused_before_anything_is_enqueued(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    delivery = world.open()
    incarnation = world.begin(delivery, "r")
    broken = replace(table_ddl("a", 2), body=json.dumps([1]).encode())
    with pytest.raises(PenstockError, match="cannot be read"):
        delivery.publish("r", incarnation, [stage_all(delivery, "r", 0, 2, [data_payload("a", 0, 1), broken])])
    assert world.keeper.calls == []
