"""The maintainer: dispatchers with durable epochs, runs that begin in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.changefeed.maintainer import Maintainer
from penstock.delivery.keeper_client import Intent, LastRow, PauseWish
from penstock.delivery.payload import dispatcher_id
from penstock.errors import BadInput, StaleRun, Unavailable
from penstock.log.position import Position, Seq
from tests.delivery.rig import DeliveryWorld

from .conftest import OpenKeeper

ORDERS = dispatcher_id("lake", "shop", "orders")


class Delivery:
    """Answers `begin_run` and looks at the keeper while it does."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.paused = False
        self.down = False

    def begin_run(self, changefeed: str, run: str, wish: PauseWish) -> dict[str, Any]:
        assert changefeed == "lake"
        self.paused = wish.paused
        if self.down:
            raise Unavailable("delivery does not answer")
        self.runs.append(run)
        return {"incarnation": f"i{len(self.runs)}", "published_end": None}


def last(entry: int) -> dict[str, LastRow]:
    return {ORDERS: LastRow(Seq(1, entry, 0, 0), "shop", "orders")}


def test_a_new_table_gets_a_dispatcher_with_epoch_1_that_survives(open_keeper: OpenKeeper) -> None:
    maintainer = Maintainer(open_keeper(), Delivery().begin_run)
    begun = maintainer.begin_run()
    assert (begun["incarnation"], begun["start"], begun["resume"]) == ("i1", "1:0", {})
    maintainer.published(begun["run"], Position(1, 0), Position(1, 4), 50, last(4))
    facts = open_keeper().facts()
    assert {d: (f.epoch, f.schema, f.table, f.progress) for d, f in facts.items()} == {
        ORDERS: (1, "shop", "orders", None)
    }


def test_a_pause_survives_and_each_run_tells_delivery(open_keeper: OpenKeeper) -> None:
    keeper, delivery = open_keeper(), Delivery()
    assert keeper.paused_ms is None
    keeper.set_paused(True)
    since = keeper.paused_ms
    keeper.set_paused(True)
    assert since is not None and keeper.paused_ms == since, "paused again: since when it was first"
    keeper = open_keeper()
    assert keeper.paused_ms == since
    Maintainer(keeper, delivery.begin_run).begin_run()
    assert delivery.paused
    keeper.set_paused(False)
    assert open_keeper().paused_ms is None
    Maintainer(keeper := open_keeper(), delivery.begin_run).begin_run()
    assert not delivery.paused


@pytest.mark.parametrize("paused", [True, False])
def test_what_is_wished_while_a_run_begins_counts(open_keeper: OpenKeeper, tmp_path: Path, paused: bool) -> None:
    """Delivery first waits for the writes in flight, for minutes maybe: what it is told of meanwhile is newer than what the
    run began with. Otherwise a sink that was resumed then would stand still, and nobody would see why."""
    keeper, delivery = open_keeper(), DeliveryWorld(tmp_path).open()
    keeper.set_paused(not paused)

    def begin_run(_changefeed: str, run: str, wish: PauseWish) -> dict[str, Any]:
        delivery.set_paused(keeper.set_paused(paused))  # by a command
        delivery.set_paused(wish)
        return delivery.begin_run(run)

    Maintainer(keeper, begin_run).begin_run()
    assert delivery.pressure()["suppressed"] is paused
    Maintainer(keeper, lambda _name, run, wish: (delivery.set_paused(wish), delivery.begin_run(run))[1]).begin_run()
    assert delivery.pressure()["suppressed"] is paused


def test_the_resume_table_says_epoch_progress_and_open_intent(open_keeper: OpenKeeper) -> None:
    maintainer = Maintainer(open_keeper(), Delivery().begin_run)
    run = maintainer.begin_run()["run"]
    maintainer.published(run, Position(1, 0), Position(1, 9), 50, last(9))
    maintainer.intent(run, ORDERS, 1, Intent("p1", Seq(1, 0, 0, 0), Seq(1, 3, 0, 0), 1, 1))
    maintainer.done(run, ORDERS, 1, Seq(1, 3, 0, 0), "p1")
    maintainer.intent(run, ORDERS, 1, Intent("p2", Seq(1, 4, 0, 0), Seq(1, 8, 0, 0), 1, 1))
    again = Maintainer(open_keeper(), Delivery().begin_run).begin_run()
    assert again["start"] == "1:0", "the range is not complete"
    assert again["resume"] == {
        ORDERS: {"epoch": 1, "progress": "1:3:0:0", "intent_last_seq": "1:8:0:0", "left_out": False}
    }
    assert again["run"] != run


def test_a_name_that_does_not_fit_its_dispatcher_is_refused_before_anything_is_made(open_keeper: OpenKeeper) -> None:
    maintainer = Maintainer(open_keeper(), Delivery().begin_run)
    run = maintainer.begin_run()["run"]
    wrong = {ORDERS: LastRow(Seq(1, 1, 0, 0), "shop", "items")}
    with pytest.raises(BadInput, match=r"not the dispatcher of shop\.items"):
        maintainer.published(run, Position(1, 0), Position(1, 4), 50, wrong)
    assert maintainer.keeper.facts() == {}


def test_a_run_that_delivery_does_not_take_does_not_begin(open_keeper: OpenKeeper) -> None:
    delivery = Delivery()
    maintainer = Maintainer(open_keeper(), delivery.begin_run)
    run = maintainer.begin_run()["run"]
    delivery.down = True
    with pytest.raises(Unavailable):
        maintainer.begin_run()
    maintainer.published(run, Position(1, 0), Position(1, 4), 50, last(4))
    delivery.down = False
    maintainer.begin_run()
    with pytest.raises(StaleRun):
        maintainer.published(run, Position(1, 5), Position(1, 6), 60, last(6))
