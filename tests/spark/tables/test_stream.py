"""A stream over a log, as Spark drives it, in one process: batches, statements that change columns, the cursor."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput
from penstock.log import CursorTable, Log, LogReader, LogSettings, Position
from penstock.spark import log_follower
from penstock.spark.plan import following
from penstock.spark.tables.options import Options
from penstock.spark.tables.reading import Piece, Resolved, batches, plan, resolve
from penstock.spark.tables.streams import log_stream as stream_module
from penstock.spark.tables.streams.evolution import ColumnsChanged
from penstock.spark.tables.streams.log_stream import LogStream
from penstock.spark.tables.streams.opening import open_stream
from penstock.state import BucketState, StateSettings
from tests.spark.tables.conftest import World
from tests.spark.tables.test_reading import load
from tests.spark.tables.worlds import capture_files

pytestmark = pytest.mark.mariadb


@pytest.fixture
def state_dir(world: World, tmp_path: Path) -> Path:
    """A log of its own, with the same changes."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    capture_files(state, world.root / "binlogs")
    return state


class Query:
    """What Spark does with a stream: a batch, then the next; from a checkpoint, or from the beginning."""

    def __init__(self, state_dir: Path, at: Position | None = None, **options: str) -> None:
        parsed = Options.parse({"path": str(state_dir), **options})
        self.resolved: Resolved = resolve(parsed)
        assert self.resolved.log is not None
        self.stream = LogStream(Path(self.resolved.log), parsed, self.resolved.target_table())
        self.at = at or self.stream.initial()

    def step(self) -> list[dict[str, Any]] | None:
        """The rows of the next batch; None where there is nothing new."""
        end = self.stream.end_of_batch(self.at)
        if end == self.at:
            return None
        rows: list[dict[str, Any]] = []
        for planned in self.stream.ranges(self.at, end):
            for batch in batches(self.resolved, Piece(planned=planned)):
                rows += batch.to_pylist()
        self.at = end
        return rows

    def run(self) -> Iterator[list[dict[str, Any]]]:
        while (rows := self.step()) is not None:
            yield rows


def end_of(state_dir: Path) -> Position:
    reader = LogReader.open(state_dir / "log")
    try:
        return reader.end()
    finally:
        reader.close()


def trim(state_dir: Path) -> int:
    """How many ledgers went: what a log keeps beyond what its readers and its state need is nothing here."""
    settings = LogSettings(maintenance_interval_seconds=0, retention_seconds=0, retention_bytes=0)
    by_hand = StateSettings(checkpoint_at_roll=False)
    with Log.open(state_dir / "log", settings) as log:
        state = BucketState.open(log, by_hand)
        log.roll()
        for _ in range(by_hand.checkpoints_kept):
            log.append(b"").result()
            state.checkpoint()
        return len(log.trim())


def test_batches_are_bounded_and_together_everything(world: World) -> None:
    query = Query(world.state_dir, maxBytesPerBatch="1")
    found = list(query.run())
    assert len(found) > 30, "one entry a batch"
    assert [row for rows in found for row in rows] == load(path=world.state_dir).to_pylist()
    assert query.at == following(end_of(world.state_dir))
    whole = Query(world.state_dir)
    assert len(list(whole.run())) == 1


def test_columns_of_now_with_rows_of_earlier_versions(world: World) -> None:
    """The default: no statement of the past ends the stream."""
    found = [row for rows in Query(world.state_dir, table="shop.sold", maxBytesPerBatch="1").run() for row in rows]
    assert found == load(path=world.state_dir, table="shop.sold").to_pylist()
    assert {"state", "n"} <= found[0].keys()


def test_a_statement_that_changes_columns_ends_the_stream_and_a_new_one_goes_on(state_dir: Path) -> None:
    options = {"table": "shop.orders", "columnsAt": "start", "cursor": "mine"}
    shapes, ops, at = [], [], None
    for _ in range(10):
        query = Query(state_dir, at, **options)
        shapes.append([name for name in query.resolved.arrow_schema().names if not name.startswith("_")])
        try:
            for rows in query.run():
                ops += [(row["_op"], row.get("id", row.get("k"))) for row in rows]
        except ColumnsChanged as error:
            assert "load the DataFrame again" in error.hint
            at = query.at
            if len(shapes) == 1:
                assert "ALTER TABLE orders ADD COLUMN state" in error.message and str(at) in error.message
            query.stream.close()
            continue
        query.stream.close()
        break
    assert shapes == [["id", "note", "total"], ["id", "note", "total", "state", "n"], ["k"]]
    assert ops == [("I", 1), ("I", 2), ("I", 3), ("D", 1), ("I", 10), ("D", 3), ("I", 4), ("I", "a"), ("I", "b")]


def test_without_a_cursor_the_error_says_where_the_new_columns_are(world: World) -> None:
    query = Query(world.state_dir, table="shop.orders", columnsAt="start")
    with pytest.raises(ColumnsChanged) as raised:
        list(query.run())
    assert f'.option("columnsAt", "{query.at}")' in raised.value.hint
    again = Query(world.state_dir, query.at, table="shop.orders", columnsAt=str(query.at))
    assert again.step() is not None


def test_a_batch_that_was_planned_for_other_columns_is_refused(world: World) -> None:
    query = Query(world.state_dir, table="shop.orders", columnsAt="start")
    with pytest.raises(ColumnsChanged, match="ADD COLUMN state"):
        query.stream.ranges(query.at, following(end_of(world.state_dir)))


def test_available_now_ends_where_the_log_ended_then(state_dir: Path) -> None:
    query = Query(state_dir, maxBytesPerBatch="1")
    query.stream.stop_at_end()
    end = end_of(state_dir)
    log = Log.open(state_dir / "log")
    log.append(b"").result()
    log.close()
    assert end_of(state_dir) > end
    list(query.run())
    assert query.at == following(end)


def test_a_cursor_holds_the_log_and_lets_go_of_what_is_acked(state_dir: Path) -> None:
    query = Query(state_dir, cursor="mine", maxBytesPerBatch="1")
    first = query.at
    reader = LogReader.open(state_dir / "log")
    assert [info.name for info in CursorTable(reader).infos()] == ["mine"], "it is there before the first batch"

    assert trim(state_dir) == 0, "nothing is acked"
    for _ in range(3):
        assert query.step() is not None
    assert CursorTable(reader).positions()["mine"] < query.at, "the last batch is not committed yet"
    query.stream.ack(query.at)
    assert following(CursorTable(reader).positions()["mine"]) == query.at
    query.stream.close()
    assert trim(state_dir) == 0, "the rest of the ledger is needed"
    rest = Query(state_dir, cursor="mine")
    assert rest.at == query.at, "a query without a checkpoint goes on there"
    list(rest.run())
    rest.stream.close()
    assert trim(state_dir) > 0 and reader.first > first
    CursorTable(reader).delete("mine")  # as docs/spark.md says
    assert not CursorTable(reader).infos()
    reader.close()


def test_what_spark_asks_from_is_acked(state_dir: Path) -> None:
    query = Query(state_dir, cursor="mine")
    list(query.run())
    reader = LogReader.open(state_dir / "log")
    assert CursorTable(reader).positions()["mine"] == end_of(state_dir)
    reader.close()
    query.stream.close()


_HOLD = """
import sys
from pathlib import Path
from penstock.spark.tables.options import Options
from penstock.spark.tables.streams.log_stream import LogStream
options = Options.parse({"path": sys.argv[1], "cursor": "mine"})
stream = LogStream(Path(sys.argv[1]) / "log", options, None)
stream.initial()
print("held", flush=True)
sys.stdin.read()
"""


def test_two_queries_do_not_share_a_cursor(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "_OPEN_SECONDS_MAX", 0.0)
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(state_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}
    ) as other:
        assert other.stdout is not None and other.stdin is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BadInput, match="cursor is 'mine', and another query reads with it"):
            Query(state_dir, cursor="mine")
        other.stdin.close()
        other.wait()
    Query(state_dir, cursor="mine").stream.close()


def test_a_start_that_is_trimmed_or_not_there_yet(state_dir: Path) -> None:
    done = Query(state_dir, cursor="mine", startingPosition="latest")
    done.stream.close()
    assert trim(state_dir) > 0
    reader = LogReader.open(state_dir / "log")
    assert not reader.complete
    reader.close()
    with pytest.raises(BadInput, match="the log begins at"):
        Query(state_dir, startingPosition="1:3")
    with pytest.raises(BadInput, match=r"the log was trimmed.*from a sink's prefix"):
        load(path=state_dir, table="shop.sold", view="current")
    latest = Query(state_dir, startingPosition="latest", table="shop.sold")
    assert latest.step() is None


def trimmed(state_dir: Path) -> None:
    """The log lets go of everything that it holds now."""
    done = Query(state_dir, cursor="last", startingPosition="latest")
    done.stream.close()
    assert trim(state_dir) > 0


def test_a_checkpoint_whose_entries_are_trimmed_is_refused_and_nothing_is_passed_over(state_dir: Path) -> None:
    query = Query(state_dir, maxBytesPerBatch="1")
    assert query.step() is not None
    trimmed(state_dir)
    for options in ({}, {"table": "shop.sold"}):
        with pytest.raises(BadInput, match=rf"had read up to {query.at}.*begins at.*checkpointLocation"):
            Query(state_dir, query.at, **options).step()


def test_a_checkpoint_whose_cursor_was_deleted_is_refused_once_the_entries_are_gone(state_dir: Path) -> None:
    query = Query(state_dir, cursor="mine", maxBytesPerBatch="1")
    assert query.step() is not None
    query.stream.close()
    reader = LogReader.open(state_dir / "log")
    CursorTable(reader).delete("mine")
    trimmed(state_dir)
    for _ in range(2):  # nor is it read on when Spark starts the query again
        late = Query(state_dir, query.at, cursor="mine")
        with pytest.raises(BadInput, match=rf"had read up to {query.at}.*begins at"):
            late.step()
        late.stream.close()
    assert "mine" not in {info.name for info in CursorTable(reader).infos()}
    reader.close()


def test_a_checkpoint_behind_its_cursor_is_refused_once_the_entries_are_gone(state_dir: Path) -> None:
    """As after a checkpoint that came back from a backup."""
    query = Query(state_dir, cursor="mine", maxBytesPerBatch="1")
    assert query.step() is not None
    old = query.at
    list(query.run())
    query.stream.close()
    assert trim(state_dir) > 0
    last = Query(state_dir, query.at, cursor="mine")
    list(last.run())  # its ledger is trimmed as well, and everything before it was read
    last.stream.close()
    late = Query(state_dir, old, cursor="mine")
    with pytest.raises(BadInput, match="had read up to"):
        late.step()
    late.stream.close()


def test_a_checkpoint_of_another_log_is_refused(state_dir: Path, world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    capture_files(other, world.root / "binlogs")
    mine, theirs = (open_stream(resolve(Options.parse({"path": str(path)}))) for path in (state_dir, other))
    offset = mine.initial()
    assert mine.end_of_batch(offset) != offset
    with pytest.raises(BadInput, match="another log"):
        theirs.end_of_batch(offset)
    with pytest.raises(BadInput, match="not one of a log"):
        mine.end_of_batch({"log": offset["log"], "day": "", "files": {}})
    assert mine.end_of_batch({"position": offset["position"]}) != offset, "as an earlier version wrote it"
    mine.close()
    mine = open_stream(resolve(Options.parse({"path": str(state_dir)})))
    with pytest.raises(BadInput, match="the log ends at"):
        mine.end_of_batch({"position": "99:0"})
    mine.close()
    theirs.close()


@pytest.mark.parametrize("view", ["changes", "current"])
def test_a_batch_read_made_before_the_log_was_trimmed_is_refused(state_dir: Path, view: str) -> None:
    """A DataFrame may be kept for days."""
    found = resolve(Options.parse({"path": str(state_dir), "table": "shop.sold", "view": view}))
    assert plan(found)
    trimmed(state_dir)
    with pytest.raises(BadInput, match="the log begins at"):
        plan(found)


def test_a_log_that_is_made_anew_under_a_worker_that_lives_on(state_dir: Path, world: World) -> None:
    """As where somebody deletes the state directory and starts over, with a notebook open."""
    old = resolve(Options.parse({"path": str(state_dir), "table": "shop.sold"}))
    pieces = plan(old)
    before = load(path=state_dir, table="shop.sold").to_pylist()
    shutil.rmtree(state_dir)
    state_dir.mkdir(mode=0o700)
    with Log.open(state_dir / "log") as log:
        log.append(b"").result()
    capture_files(state_dir, world.root / "binlogs")
    after = load(path=state_dir, table="shop.sold").to_pylist()
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert [row["_seq"] for row in after] != [row["_seq"] for row in before], "they are those of the new log"
    with pytest.raises(BadInput, match="another log than when the DataFrame was made"):
        plan(old)
    with pytest.raises(BadInput, match="another log than when the DataFrame was made"):
        list(batches(old, pieces[0]))


@pytest.mark.parametrize("caught_up", [True, False])
def test_a_log_that_is_trimmed_while_a_stream_without_a_cursor_runs(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch, caught_up: bool
) -> None:
    """One that is behind fails; one that had read everything goes on, though its ledger is gone."""
    monkeypatch.setattr(log_follower, "FRAMES_MAX", 5)
    query = Query(state_dir, maxBytesPerBatch="1")
    assert query.step() is not None
    if caught_up:
        list(query.run())
        with Log.open(state_dir / "log") as log:
            log.roll()
        assert query.step() is None
    trimmed(state_dir)
    if caught_up:
        assert [row for rows in query.run() for row in rows] == [], "the trim itself appended entries, and no rows"
        assert query.at == following(end_of(state_dir))
    else:
        with pytest.raises(BadInput, match="what is between was trimmed"):
            for _ in range(10):
                query.at = query.stream.end_of_batch(query.at)
