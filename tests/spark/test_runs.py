"""Real Spark over a real log, with real delivery and keeper. One context for all: a JVM takes seconds to start."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from penstock.delivery.spool import Spool
from penstock.errors import Corruption
from penstock.log import Log
from penstock.spark.failure import PipelineFailure, exit_code
from penstock.spark.jvm.engine import Engine
from penstock.spark.runs import WAITED_FOR_LOG, WAITED_FOR_SINK, WAITED_FOR_TASKS
from tests.spark.failing import size_of
from tests.spark.rig import CHANGEFEED, MakeRig

pytestmark = pytest.mark.spark
CHANGES = 3000


@pytest.mark.parametrize("fmt", ["canal-json", "parquet"])
def test_every_row_reaches_the_sink_once_and_in_order(engine: Engine, make_rig: MakeRig, fmt: str) -> None:
    rig = make_rig(fmt=fmt)
    rig.start(engine, range_bytes_min=1 << 14, batch_bytes_max=1 << 18)
    rig.wait_delivered()
    expected = rig.expected()
    assert sum(len(rows) for rows in expected.values()) >= CHANGES
    assert rig.delivered() == expected
    assert rig.runs is not None
    assert rig.runs.counters.rows == sum(len(rows) for rows in expected.values())
    assert {"decode", "encode", "stage", "publish", WAITED_FOR_TASKS} <= set(rig.runs.counters.stage_seconds)


def test_filters_leave_tables_out(engine: Engine, make_rig: MakeRig) -> None:
    rig = make_rig()
    names = sorted(rig.expected())
    rig.start(engine, only=[names[0], names[1]], source_exclude=[names[1]])
    rig.wait_delivered()
    assert sorted(rig.delivered()) == names[:1]


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_a_task_that_fails_after_staging_is_repeated_and_nothing_doubles(
    engine: Engine, make_rig: MakeRig, how: str
) -> None:
    rig = make_rig()
    (rig.state_dir / f"fail-{how}").touch()
    rig.start(engine, range_bytes_min=1 << 14)
    rig.wait_delivered()
    assert (rig.state_dir / f"fail-{how}.done").exists()
    assert rig.delivered() == rig.expected()
    assert rig.runs is not None
    assert rig.runs.counters.runs == 1, "Spark repeats the task, the run goes on"


def test_two_batches_are_in_flight_and_published_in_order(engine: Engine, make_rig: MakeRig) -> None:
    """The first batch is held; the second has staged everything and waits for it, and no third one begins."""
    rig = make_rig()
    (rig.state_dir / "hold").write_text(str(rig.keeper.reader.first))
    rig.start(engine, batch_bytes_max=1 << 16, range_bytes_min=1 << 30)
    rig.wait_until("the second batch", lambda: len(list(rig.state_dir.glob("seen-*"))) >= 2)
    assert rig.runs is not None and rig.delivery is not None
    staged = rig.delivery.delivery_of({"changefeed": CHANGEFEED}).spool
    rig.wait_until("its payloads", lambda: staged.staged_bytes > 0)
    assert rig.runs.counters.batches == 0, "it comes after the one that is held"
    assert len(list(rig.state_dir.glob("seen-*"))) == 2
    (rig.state_dir / "hold").unlink()
    rig.wait_delivered()
    assert rig.delivered() == rig.expected()
    assert rig.runs.counters.batches > 2
    assert rig.runs.counters.runs == 1


def test_a_task_that_fails_again_and_again_is_reported_and_not_repeated_for_ever(
    engine: Engine, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.spark.runs.UNEXPECTED_IN_A_ROW_MAX", 2)
    rig = make_rig()
    (rig.state_dir / "fail-raise-always").touch()
    rig.start(engine)
    with pytest.raises(AssertionError, match="RuntimeError: a test wanted this task to fail"):
        rig.wait_delivered()


def test_bytes_that_cannot_be_decoded_are_reported_with_their_kind(engine: Engine, make_rig: MakeRig) -> None:
    rig = make_rig(changes=100)
    log = Log.open(rig.state_dir / "log")
    log.append(b"this is not an entry").result()
    log.close()
    rig.start(engine)
    rig.wait_until("the end", lambda: rig.failure is not None or rig.runs is None, check=False)
    assert isinstance(rig.failure, PipelineFailure)
    assert type(rig.failure.error) is Corruption
    assert "PSE1" in rig.failure.error.message
    assert exit_code(rig.failure.error, rig.failure.where) == 3


def test_while_delivery_is_suppressed_no_batch_comes(
    engine: Engine, make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Spool, "excess_bytes", lambda _spool: 0)  # writers make no room by themselves
    rig = make_rig(spool_high_bytes=1, spool_low_bytes=0)
    rig.changefeed["flush"] = {"size": "64MiB", "every": "1h"}
    rig.stop_delivery()
    rig.start_delivery()
    rig.start(engine, batch_bytes_max=1 << 14)
    rig.wait_until("rows", lambda: rig.runs is not None and rig.runs.counters.rows > 0)
    assert rig.runs is not None
    assert rig.delivery is not None
    seconds = rig.runs.counters.stage_seconds
    rig.wait_until("the end of those under way", lambda: seconds.get(WAITED_FOR_SINK, 0.0) > 0)
    batches = rig.runs.counters.batches
    rig.stop.wait(1.0)
    assert rig.runs.counters.batches == batches, "the spool is over its limit"
    rig.wait_until("wait for the sink", lambda: seconds.get(WAITED_FOR_SINK, 0.0) > seconds.get(WAITED_FOR_LOG, 0.0))
    rig.delivery.delivery_of({"changefeed": CHANGEFEED}).flush(20.0)
    rig.wait_until("the next batch", lambda: rig.runs is not None and rig.runs.counters.batches > batches)


def test_a_new_delivery_gets_a_new_run_and_nothing_is_lost_or_doubled(engine: Engine, make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.changefeed["flush"] = {"size": "64MiB", "every": "1h"}
    rig.stop_delivery()
    rig.start_delivery()
    rig.start(engine, batch_bytes_max=1 << 16)
    rig.wait_until("a batch", lambda: rig.runs is not None and rig.runs.counters.batches >= 1)
    rig.stop_delivery()
    rig.changefeed["flush"] = {"size": "1MiB", "every": "200ms"}
    rig.start_delivery()
    rig.wait_delivered()
    assert rig.delivered() == rig.expected()
    assert rig.runs is not None
    assert rig.runs.counters.runs >= 2


def test_a_run_that_goes_on_with_nothing_to_do_says_that_it_does(engine: Engine, make_rig: MakeRig) -> None:
    """Otherwise `status` shows the failure of the run before until the next change comes, which may be tomorrow."""
    rig = make_rig(changes=100)
    rig.start(engine)
    rig.wait_delivered()

    def kinds() -> list[str]:
        return [str(event["event"]) for event in rig.events]

    rig.stop_delivery()
    rig.wait_until("another try", lambda: kinds()[-1] == "restart")
    assert rig.runs is not None
    batches = rig.runs.counters.batches
    rig.start_delivery()
    rig.wait_until("a word of it", lambda: kinds()[-1] == "progress")
    assert rig.runs.counters.batches == batches


def test_a_large_job_leaves_nothing_on_the_disk(engine: Engine) -> None:
    """The resume table of ten thousand tables has more than a MiB, and goes to the tasks of every batch: Spark put each into a file
    of its own, which stayed until the driver ended."""
    directory = Path(str(engine._context._temp_dir))
    task = partial(size_of, "x" * (2 << 20))
    for _ in range(2):
        assert engine.run("large", [None], task) == [2 << 20]
    assert [path for path in directory.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20] == []
