"""A batch takes no more of the log than fits, by what recent batches grew to, into the room that delivery has."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import TooMuch
from penstock.log.position import Position
from penstock.spark.batches import Batch
from penstock.spark.failure import PipelineFailure, error_to_text
from penstock.spark.job import Job
from penstock.spark.plan import FIRST_BATCH_BYTES, GROWTH_BATCHES, STAGED_BYTES, Growth
from penstock.spark.range_manifest import RangeManifest
from penstock.spark.replays import Replays
from penstock.spark.runs import ChangefeedRuns, _Run
from tests.spark.test_plan import at, planner


def manifest(read: int, staged: int, error: str = "") -> RangeManifest:
    return RangeManifest(Position(1, 0), Position(1, 9), 0, bytes=staged, read_bytes=read, error=error)


def test_the_most_of_recent_batches_counts() -> None:
    growth = Growth()
    assert growth.raw_bytes(1000) == FIRST_BATCH_BYTES, "nothing is known"
    growth.note([manifest(100, 300), manifest(100, 100)])
    assert growth.raw_bytes(1000) == 500
    growth.note([manifest(100, 1000)])
    assert growth.raw_bytes(1000) == 100
    growth.note([manifest(100, 0)])
    growth.note([manifest(0, 0)])
    assert growth.raw_bytes(1000) == 100, "what the sink had already says nothing"
    for _ in range(GROWTH_BATCHES):
        growth.note([manifest(100, 50)])
    assert growth.raw_bytes(1000) == 2000, "the rest is forgotten"
    assert growth.raw_bytes(0) == 1
    assert growth.raw_bytes(1 << 40) == 2 * STAGED_BYTES, "whatever room there is: the sink has to do meanwhile"


def test_the_plan_is_bounded_and_always_has_an_entry() -> None:
    frames = at(*range(20))
    for bytes_max, end in ((None, 10), (1000, 10), (35, 3), (10, 1), (1, 1)):
        assert planner(frames).end_of_batch(Position(1, 0), bytes_max) == Position(1, end)


class Delivery:
    def __init__(self, **pressure: Any) -> None:
        self.pressure = {
            "suppressed": False,
            "until": None,
            "room_bytes": 4000,
            "left_out": [],
            "replay": [],
            **pressure,
        }

    def call(self, op: str, **_arguments: Any) -> dict[str, Any]:
        return self.pressure if op == "pressure" else {}


class Batches:
    def __init__(self) -> None:
        self.asked: list[tuple[Position | None, int | None]] = []
        self.replays = Replays()

    def start_next(self, until: Position | None = None, bytes_max: int | None = None) -> bool:
        self.asked.append((until, bytes_max))
        return True


@pytest.fixture
def runs(tmp_path: Path) -> ChangefeedRuns:
    engine: Any = None
    job = Job(str(tmp_path), str(tmp_path / "delivery"), "lake", "r1", "1:0", "parquet")
    return ChangefeedRuns(engine, job, control=tmp_path / "control", emit=lambda _: None, stop=threading.Event())


def test_the_next_batch_is_bounded_by_the_room(runs: ChangefeedRuns) -> None:
    asked: Any = Batches()
    run = _Run(runs._job, "i1")
    delivery: Any = Delivery()
    runs._delivery = delivery
    assert runs._start_next(run, asked)
    runs._publish(run, Batch([manifest(100, 400)]))
    assert runs._start_next(run, asked)
    delivery.pressure["until"] = "1:7"  # rows that an open file waits for are taken whatever room there is
    delivery.pressure["room_bytes"] = 0
    assert runs._start_next(run, asked)
    assert asked.asked == [(None, FIRST_BATCH_BYTES), (None, 500), (Position(1, 7), None)], (
        "half of 4000, at four bytes for one"
    )


def test_a_batch_that_was_refused_teaches_too(runs: ChangefeedRuns) -> None:
    delivery: Any = Delivery()
    runs._delivery = delivery
    refused = manifest(100, 900, error_to_text(TooMuch("full"), "sink"))
    with pytest.raises(PipelineFailure):
        runs._publish(_Run(runs._job, "i1"), Batch([refused]))
    assert runs._growth.ratio == 9.0
