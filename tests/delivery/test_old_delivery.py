"""A delivery process that was taken for dead and goes on: the keeper takes nothing more from its run."""

from __future__ import annotations

from pathlib import Path

from penstock.delivery.dispatcher import Phase
from tests.delivery.rig import DeliveryWorld, data_payload, id_of, read_tables, stage_all, work


def test_the_intent_of_an_older_run_is_refused(tmp_path: Path) -> None:
    world = DeliveryWorld(tmp_path)
    old = world.open()
    incarnation = world.begin(old, "r1")
    old.publish("r1", incarnation, [stage_all(old, "r1", 0, 3, [data_payload("orders", 0, 3)])])

    new = world.open()
    incarnation = world.begin(new, "r2")
    new.publish("r2", incarnation, [stage_all(new, "r2", 0, 9, [data_payload("orders", 0, 9)])])
    world.clock.sleep(100)
    work(old)  # its batch is due
    assert old.writer is not None and new.writer is not None
    assert old.writer.dispatchers[id_of("orders")].phase is Phase.STOPPED
    assert "run r1 is over" in str(old.writer.dispatchers[id_of("orders")].stopped)
    assert world.keeper.facts[id_of("orders")].intent is None

    work(new)
    assert new.writer.stopped() == []
    assert read_tables(tmp_path) == {"orders": bytes(data_payload("orders", 0, 9).body).splitlines(True)}
