"""The keeper's promises, over a real log, cursor and progress log."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.changefeed.keeper import Keeper
from penstock.delivery.keeper_client import Intent
from penstock.errors import BadInput, Closed, Fenced, StaleRun, Terminal
from penstock.log import Log, LogReader
from penstock.log.position import Position, Seq
from tests.support.waiting import LIMIT_SECONDS

from .conftest import OpenKeeper, fill_log

A, B = "a" * 32, "b" * 32


def at(entry: int, row: int = 0) -> Seq:
    return Seq(1, entry, 0, row)


def file(first: int, last: int, number: int = 1) -> Intent:
    return Intent(f"shop/orders/1/CDC{number:06}.json", at(first), at(last), 100, 12345, rows=last - first + 1)


def begun(keeper: Keeper, run: str = "r1") -> Keeper:
    keeper.create({A: ("shop", "orders"), B: ("shop", "items")})
    keeper.begin_run(run)
    return keeper


def deliver(keeper: Keeper, dispatcher: str, first: int, last: int, number: int = 1) -> int:
    intent = file(first, last, number)
    keeper.intent(dispatcher, 1, intent)
    return keeper.done(dispatcher, 1, intent.last_seq, intent.path)


def test_a_run_starts_at_the_first_entry_and_goes_on_after_mark_delete(open_keeper: OpenKeeper) -> None:
    keeper = open_keeper()
    first = keeper.reader.first
    assert keeper.begin_run("r1") == first
    keeper.create({A: ("shop", "orders")})
    keeper.published("r1", first, Position(1, 9), 900, {A: at(9)})
    deliver(keeper, A, 0, 9)
    assert keeper.mark_delete == Position(1, 9)
    assert open_keeper().begin_run("r2") == Position(1, 10)


def test_acks_in_any_order_and_the_cursor_never_leads_progress(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    start = keeper.mark_delete
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9), B: at(3)})
    keeper.published("r1", Position(1, 10), Position(1, 19), 200, {B: at(19)})
    assert deliver(keeper, B, 0, 19) == 0
    assert keeper.mark_delete == start, "A has rows in the first range"
    assert keeper.backlog() == 40 - 10
    assert deliver(keeper, A, 0, 8) == 0
    assert keeper.mark_delete == start, "one row of A is still missing"
    assert deliver(keeper, A, 9, 9, 2) == 200
    assert keeper.mark_delete == Position(1, 19)
    assert keeper.waiting_ranges == 0


def test_a_range_without_rows_is_acked_when_it_is_published(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 4), 50, {})
    assert keeper.mark_delete == Position(1, 4)
    assert keeper.checkpoint_ts == 50
    keeper.published("r1", Position(1, 5), Position(1, 9), 60, {A: at(7)})
    assert keeper.mark_delete == Position(1, 4)


def test_rows_that_were_delivered_before_are_not_waited_for(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9), B: at(9)})
    deliver(keeper, A, 0, 9)
    keeper = open_keeper()
    keeper.begin_run("r2")
    keeper.published("r2", Position(1, 0), Position(1, 4), 90, {A: at(4), B: at(2)})
    deliver(keeper, B, 0, 2)
    assert keeper.mark_delete == Position(1, 4)
    assert keeper.checkpoint_ts == 90


def test_an_intent_is_replaced_for_the_same_rows_only(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.intent(A, 1, file(0, 9))
    others = (file(0, 8), replace(file(0, 9), rows=9, checksum=1), replace(file(0, 9), first_seq=at(1)))
    for other in others:
        with pytest.raises(Terminal, match="is not done"):
            keeper.intent(A, 1, other, replaces=True)
    now = replace(file(0, 9), length=120, checksum=7)
    with pytest.raises(Terminal, match="is not done"):
        keeper.intent(A, 1, now)
    for _ in range(2):
        keeper.intent(A, 1, now, replaces=True)
    keeper.close()
    keeper = open_keeper()
    assert keeper.facts()[A].intent == now
    keeper.done(A, 1, at(9), now.path)
    assert keeper.facts()[A].bytes == 120


def test_what_an_intent_has_replaced_is_known_over_restarts(open_keeper: OpenKeeper) -> None:
    """A file of a replaced promise may still come to its path, and is as good as any."""
    keeper = begun(open_keeper())
    made = [replace(file(0, 9), length=100 + number, checksum=number) for number in range(20)]
    for number, one in enumerate(made):
        keeper.intent(A, 1, one, replaces=number > 0)
    keeper.intent(A, 1, made[18], replaces=True)
    keeper.close()
    keeper = open_keeper()
    open_ = keeper.facts()[A].intent
    assert open_ is not None and open_ == made[18]
    assert open_.earlier == tuple((100 + number, number) for number in (19, *range(17, 2, -1))), "the newest sixteen"
    assert open_.promise_of(110, 10) == made[10] and open_.promise_of(118, 18) == made[18]
    assert open_.promise_of(110, 11) is None and open_.promise_of(100, 0) is None
    keeper.done(A, 1, at(9), open_.path)
    keeper.intent(A, 1, file(10, 12))
    keeper.intent(A, 1, replace(file(10, 12), path="another", checksum=3), replaces=True)
    found = keeper.facts()[A].intent
    assert found is not None and found.path == "another" and not found.earlier


def test_an_intent_is_binding(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.intent(A, 1, file(0, 9))
    keeper.intent(A, 1, file(0, 9))
    for other in (file(0, 8), file(0, 9, 2), Intent(file(0, 9).path, at(0), at(9), 100, 999)):
        with pytest.raises(Terminal, match="is not done") as refused:
            keeper.intent(A, 1, other)
        assert str(file(0, 9)) in str(refused.value)
        assert str(other) in str(refused.value)
    for seq, path in ((at(9), None), (at(9), "elsewhere"), (at(8), file(0, 9).path), (at(10), file(0, 9).path)):
        with pytest.raises(Terminal, match="is open"):
            keeper.done(A, 1, seq, path)
    keeper = open_keeper()
    assert keeper.facts()[A].intent == file(0, 9)
    with pytest.raises(Terminal, match="is not done"):
        keeper.intent(A, 1, file(0, 8))
    keeper.done(A, 1, at(9), file(0, 9).path)
    facts = open_keeper().facts()[A]
    assert (facts.intent, facts.progress, facts.last_path) == (None, at(9), file(0, 9).path)
    assert (facts.rows, facts.files, facts.bytes) == (10, 1, 100)


def test_progress_never_goes_back_and_saying_done_again_is_fine(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9)})
    assert deliver(keeper, A, 0, 9) == 100
    assert keeper.done(A, 1, at(9), file(0, 9).path) == 100
    assert keeper.done(A, 1, at(5), None) == 100
    assert keeper.facts()[A].progress == at(9)
    assert keeper.facts()[A].files == 1
    with pytest.raises(Terminal, match="not after progress"):
        keeper.intent(A, 1, file(9, 12))
    with pytest.raises(Terminal, match="without an intent"):
        keeper.done(A, 1, at(12), "x")


def test_another_epoch_is_fenced(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.intent(A, 1, file(0, 9))
    keeper.raise_epoch(A, 2)
    for epoch in (1, 3):
        with pytest.raises(Fenced):
            keeper.done(A, epoch, at(9), file(0, 9).path)
        with pytest.raises(Fenced):
            keeper.intent(A, epoch, file(0, 9))
    with pytest.raises(Fenced):
        keeper.raise_epoch(A, 2)
    keeper = open_keeper()
    assert (keeper.facts()[A].epoch, keeper.facts()[A].intent) == (2, file(0, 9))
    keeper.done(A, 2, at(9), file(0, 9).path)
    keeper.create({A: ("shop", "orders")})
    assert keeper.facts()[A].epoch == 2, "made again, it keeps its epoch"


def test_another_run_is_fenced(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.intent(A, 1, file(0, 9), run="r1")
    keeper.begin_run("r2")
    for work in (
        lambda: keeper.intent(A, 1, file(0, 9), run="r1"),
        lambda: keeper.done(A, 1, at(9), file(0, 9).path, run="r1"),
        lambda: keeper.drained(A, at(9), run="r1"),
    ):
        with pytest.raises(Fenced, match="run r1 is over"):
            work()
    assert keeper.facts()[A].progress is None
    keeper.done(A, 1, at(9), file(0, 9).path, run="r2")
    assert keeper.facts()[A].progress == at(9)


def test_ranges_of_another_run_gaps_and_overlaps_are_refused(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9)})
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9)})
    assert keeper.waiting_ranges == 1, "published again, it changes nothing"
    with pytest.raises(StaleRun):
        keeper.published("r0", Position(1, 10), Position(1, 11), 100, {})
    for start in (11, 9, 0):
        with pytest.raises(Terminal, match="does not go on"):
            keeper.published("r1", Position(1, start), Position(1, 20), 100, {})
    with pytest.raises(BadInput, match="no dispatcher"):
        keeper.published("r1", Position(1, 10), Position(1, 19), 100, {"c" * 32: at(10)})
    with pytest.raises(BadInput, match="beyond the log's end"):
        keeper.published("r1", Position(1, 10), Position(1, 40), 100, {})
    keeper.begin_run("r2")
    with pytest.raises(StaleRun):
        keeper.published("r1", Position(1, 10), Position(1, 11), 100, {})
    assert keeper.waiting_ranges == 0


def test_a_ddl_waits_for_the_rows_before_it(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9)})
    keeper.published("r1", Position(1, 10), Position(1, 10), 200, {A: at(10)})
    assert not keeper.drained(A, at(10))
    keeper.intent(A, 1, file(0, 9))
    assert not keeper.drained(A, at(10))
    keeper.done(A, 1, at(9), file(0, 9).path)
    assert keeper.drained(A, at(10))
    assert keeper.done(A, 1, at(10), None) == 200


def test_the_checkpoint_survives_and_never_goes_back(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.published("r1", Position(1, 0), Position(1, 9), 100, {A: at(9)})
    deliver(keeper, A, 0, 9)
    keeper = open_keeper()
    assert keeper.checkpoint_ts == 100
    keeper.begin_run("r2")
    keeper.published("r2", Position(1, 10), Position(1, 12), 0, {})
    assert keeper.checkpoint_ts == 100
    assert keeper.facts()[A].progress_commit_ts == 100


def test_a_run_that_began_at_an_empty_ledger_goes_on_after_it_is_gone(tmp_path: Path) -> None:
    """A capture process that appends nothing, because the source is down, removes its ledger when it ends."""
    fill_log(tmp_path, 10)
    reader = LogReader.open(tmp_path / "log")
    keeper = Keeper.open(tmp_path, "lake", reader)
    try:
        keeper.begin_run("r1")
        keeper.published("r1", reader.first, reader.end(), 10, {})
        capture = Log.open(tmp_path / "log")
        start = keeper.begin_run("r2")
        capture.close()
        fill_log(tmp_path, 2)
        end = reader.end()
        assert reader.end().ledger_id > start.ledger_id > reader.first.ledger_id
        gap = Position(end.ledger_id, end.entry_id)
        with pytest.raises(Terminal, match="does not go on"):
            keeper.published("r2", gap, end, 20, {})
        keeper.published("r2", start, end, 20, {})
        assert keeper.reached(end)
        assert keeper.backlog() == 0
    finally:
        keeper.close()
        reader.close()


def test_ranges_go_on_over_the_ends_of_ledgers(tmp_path: Path) -> None:
    fill_log(tmp_path, 25, ledger_entries_max=10)
    reader = LogReader.open(tmp_path / "log")
    keeper = Keeper.open(tmp_path, "lake", reader)
    try:
        end = reader.end()
        assert end.ledger_id > reader.first.ledger_id
        start = keeper.begin_run("r1")
        last = Position(start.ledger_id, 9)
        keeper.published("r1", start, last, 10, {})
        keeper.published("r1", Position(last.ledger_id, last.entry_id + 1), end, 20, {})
        assert keeper.reached(end)
        assert keeper.backlog() == 0
        fill_log(tmp_path, 1)
        assert not keeper.reached(reader.end())
        following = keeper.begin_run("r2")
        keeper.published("r2", following, reader.end(), 30, {})
        assert keeper.reached(reader.end())
        assert keeper.checkpoint_ts == 30
    finally:
        keeper.close()


def test_many_threads_share_syncs_and_lose_nothing(open_keeper: OpenKeeper) -> None:
    keeper = open_keeper()
    names = {f"{number:032x}": ("shop", f"t{number}") for number in range(16)}
    keeper.create(names)
    keeper.begin_run("r1")
    for entry in range(40):
        keeper.published("r1", Position(1, entry), Position(1, entry), entry + 1, {name: at(entry) for name in names})
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for entry in range(40):
                keeper.done(name, 1, at(entry), None)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert not failures
    assert keeper.mark_delete == Position(1, 39)
    assert keeper.checkpoint_ts == 40


def test_a_closed_keeper_says_so(open_keeper: OpenKeeper) -> None:
    keeper = begun(open_keeper())
    keeper.close()
    with pytest.raises(Closed):
        keeper.done(A, 1, at(1), None)
    open_keeper()
