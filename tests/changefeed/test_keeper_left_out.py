"""Dispatchers that are to be left out, and those that come back: durable, with epochs that only grow, and a cursor that waits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import Maintainer
from penstock.errors import BadInput, Fenced, PenstockError, StaleRun
from penstock.files.memory import MemoryFiles
from penstock.log import LogReader
from penstock.log.position import Position

from .conftest import OpenKeeper, fill_log
from .test_keeper import A, B, at, begun, deliver, file


def test_it_is_so_over_restarts_until_somebody_wants_it_back(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    since = keeper.leave_out(A, out=True)
    assert since > 0 and keeper.leave_out(A, out=True) == since
    keeper = open_keeper()
    assert {key: facts.left_out_ms for key, facts in keeper.left_out.items()} == {A: since}
    assert keeper.facts()[A].to_json()["left_out_ms"] == since
    resume = Maintainer(keeper, lambda _name, _run, _paused: {"incarnation": "i"}).begin_run()["resume"]
    assert {key: one["left_out"] for key, one in resume.items()} == {A: True, B: False}
    assert keeper.leave_out(A, out=False) == 0
    assert not open_keeper().left_out
    with pytest.raises(BadInput, match="has no dispatcher"):
        open_keeper().leave_out("c" * 32, out=True)


def test_the_cursor_waits_for_it_and_everything_else_is_settled(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 4), 5, {A: at(3), B: at(4)})
    keeper.leave_out(A, out=True)
    assert not keeper.settled(Position(1, 4)), "the other is on its way"
    deliver(keeper, B, 0, 4)
    assert keeper.settled(Position(1, 4)) and not keeper.reached(Position(1, 4))
    assert not keeper.settled(Position(1, 5)), "that is not published"
    assert (keeper.mark_delete, keeper.checkpoint_ts) == (Position(1, -1), 0)
    keeper.leave_out(A, out=False)
    assert not keeper.settled(Position(1, 4))


def test_a_run_that_begins_meanwhile_settles_nothing(open_keeper: OpenKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for nobody because it has published nothing: `penstock run --once` would end before the other's rows are there."""
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 4), 5, {A: at(3), B: at(4)})
    keeper.leave_out(A, out=True)
    published = keeper.published_reached

    def then_begins(position: Position) -> bool:
        found = published(position)
        keeper.begin_run("r2")
        return found

    monkeypatch.setattr(keeper, "published_reached", then_begins)
    left = type(keeper).left_out

    def begins_first(self: Keeper) -> object:
        found = left.fget(self)  # type: ignore[attr-defined]
        keeper.begin_run("r3")
        return found

    assert not keeper.settled(Position(1, 4))
    monkeypatch.setattr(type(keeper), "left_out", property(begins_first))
    assert not keeper.settled(Position(1, 4))


def test_a_replay_starts_at_the_oldest_range_that_waits(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    for start in range(0, 20, 5):
        keeper.published("r1", Position(1, start), Position(1, start + 4), start + 5, {A: at(start + 3)})
    deliver(keeper, A, 0, 3)
    [(start, facts)] = keeper.begin_replay("r1", [A]).values()
    assert (start, facts.epoch, facts.progress) == (Position(1, 5), 2, at(3))
    assert keeper.begin_replay("r1", [B])[B][0] == Position(1, 20), "nothing waits for it"
    with pytest.raises(Fenced, match="epoch 1 is not 2"):
        keeper.intent(A, 1, file(5, 8))
    keeper.intent(A, 2, file(5, 18, 2))
    keeper.done(A, 2, at(18), file(5, 18, 2).path)
    assert keeper.mark_delete == Position(1, 19)
    assert open_keeper().facts()[A].epoch == 2


def test_nobody_comes_back_in_a_run_that_is_over_or_against_a_wish(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.leave_out(B, out=True)
    for run, who in (("r0", [A]), ("r1", [A, B])):
        with pytest.raises(StaleRun):
            keeper.begin_replay(run, who)
    assert {facts.epoch for facts in keeper.facts().values()} == {1}, "all of them or none"


def test_the_power_is_cut_at_every_operation(tmp_path: Path) -> None:
    """What was answered is there: a wish, its end, and an epoch before anything can be of it."""
    fill_log(tmp_path, 1)
    seed = random.randrange(1 << 30)
    operation = 0
    while True:
        operation += 1
        files, reader = MemoryFiles(), LogReader.open(tmp_path / "log")
        name, said = f"feed{operation}", ["nothing"]
        keeper = Keeper.open(tmp_path, name, reader, files=files)
        begun(keeper)
        files.cut_power_at(files.operations + operation)
        cut = False
        try:
            keeper.leave_out(A, out=True)
            said.append("out")
            keeper.leave_out(A, out=False)
            said.append("back")
            keeper.begin_replay("r1", [A])
            said.append("epoch")
            keeper.close()
        except PenstockError:
            cut = True
        again = Keeper.open(tmp_path, name, reader, files=files.crash(random.Random(seed)))
        facts = again.facts()[A]
        allowed = {
            "nothing": [(False, 1), (True, 1)],
            "out": [(True, 1), (False, 1)],
            "back": [(False, 1), (False, 2)],
            "epoch": [(False, 2)],
        }
        assert (facts.left_out_ms > 0, facts.epoch) in allowed[said[-1]], (seed, operation, said, facts)
        again.close()
        reader.close()
        if not cut:
            break
        assert operation < 200
    assert operation > 3
