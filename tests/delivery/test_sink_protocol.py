"""Delivery works for any sink: one that knows no paths, dates or files, as a message broker would be."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import penstock.delivery
from penstock.clock import ManualClock
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.dispatcher import Batch, Dispatcher
from penstock.delivery.keeper_client import DispatcherStart
from penstock.delivery.payload import Payload
from penstock.delivery.settings import FlushSettings
from penstock.delivery.sink import Bodies
from penstock.delivery.spool import SpoolLimits
from penstock.errors import Unavailable
from penstock.log.position import Position, Seq
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED, Row, expected_tables, payloads_of, stage_all, stream, work


class Topic:
    """Messages of all tables in one list. Every third send fails once."""

    changefeed = CHANGEFEED

    def __init__(self, keeper: MemoryKeeper) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.batches: list[Batch] = []
        self.checkpoint = 0
        self.sends = 0
        self.keeper = keeper

    def recall(self, start: DispatcherStart | None) -> None:
        return None

    def key_of(self, payload: Payload) -> None:
        return None  # a message of any version and date may follow any other

    def begin(self, dispatcher: Dispatcher, batch: Batch, bodies: Bodies, release: Callable[[], None]) -> Send:
        return Send(self, dispatcher, batch, bodies, release)

    def apply_ddl(self, dispatcher: Dispatcher, payload: Payload) -> int | None:
        self.messages.append((dispatcher.table, b"ddl"))
        return self.keeper.done(
            CHANGEFEED, dispatcher.run, dispatcher.id, dispatcher.epoch, payload.last_seq, path=None
        )

    def describe(self, dispatcher: Dispatcher) -> dict[str, Any]:
        return {"topic": "all"}

    def probe(self) -> None: ...

    def write_checkpoint(self, checkpoint_ts: int, *, at_once: bool) -> None:
        self.checkpoint = checkpoint_ts

    def close(self) -> None: ...


class Send:
    checkpoint_ts = 0

    def __init__(
        self, topic: Topic, dispatcher: Dispatcher, batch: Batch, bodies: Bodies, release: Callable[[], None]
    ) -> None:
        self.last_seq: Seq = batch.last_seq
        self.size = batch.bytes
        self._topic, self._dispatcher, self._batch, self._bodies, self._release = (
            topic,
            dispatcher,
            batch,
            bodies,
            release,
        )

    def advance(self) -> None:
        topic, dispatcher = self._topic, self._dispatcher
        topic.sends += 1
        if topic.sends % 3 == 0:
            raise Unavailable("the broker is away")
        topic.messages += [(dispatcher.table, line) for body in self._bodies for line in bytes(body).splitlines(True)]
        topic.batches.append(self._batch)
        self.checkpoint_ts = topic.keeper.done(
            CHANGEFEED, dispatcher.run, dispatcher.id, dispatcher.epoch, self.last_seq, path=None
        )
        self._release()

    def pause(self) -> None: ...


def test_a_sink_without_files() -> None:
    keeper, clock = MemoryKeeper(), ManualClock()
    topic = Topic(keeper)
    delivery = ChangefeedDelivery(
        CHANGEFEED,
        incarnation="i",
        keeper=keeper,
        open_sink=lambda: topic,
        flush=FlushSettings(size=1024, every=60),
        limits=SpoolLimits(),
        clock=clock,
        writers=0,
    )
    rows = stream(40, seed=5, ddl_every=9)
    incarnation = str(delivery.begin_run("r")["incarnation"])
    keeper.begin_run("r")
    named = stage_all(delivery, "r", 0, 39, payloads_of(rows, {}, rows_max=4))
    delivery.publish("r", incarnation, [named])
    for _ in range(6):
        clock.sleep(100)
        work(delivery)
    delivery.flush()
    for table, lines in expected_tables(rows).items():
        assert [body for name, body in topic.messages if name == table and body != b"ddl"] == lines
        assert _shape(rows, table) == [body == b"ddl" for name, body in topic.messages if name == table]
    assert any(len({item.payload.date for item in batch.items}) > 1 for batch in topic.batches)  # no key, so no cut
    assert keeper.mark_delete == Position(1, 39) and topic.checkpoint == keeper.checkpoint_ts
    assert all(each["topic"] == "all" for each in delivery.status()["dispatchers"].values())
    assert delivery.spool.bytes == 0


def _shape(rows: list[Row], table: str) -> list[bool]:
    """Where in a table's order the DDL are."""
    return [row.ddl for row in rows if row.schema.table == table]


@pytest.mark.parametrize("module", ["sink", "dispatcher", "writer", "changefeed_delivery", "staging"])
def test_the_way_to_a_sink_knows_no_storage(module: str) -> None:
    tree = ast.parse((Path(penstock.delivery.__file__).parent / f"{module}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if ".storage" in name or name.startswith("penstock.objects")]
    words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not words & {"date", "path", "last_path", "version"}
