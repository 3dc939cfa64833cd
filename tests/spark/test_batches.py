"""A batch ends where a version of the settings does, so that each range has one."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.log.position import Position
from penstock.rules.versions import RowSettings, SettingsVersion
from penstock.spark.batches import Batches
from penstock.spark.job import Job
from penstock.spark.plan import FrameSummary, PlannedRange, Planner, PlanSettings
from penstock.spark.range_manifest import RangeManifest


class _Engine:
    """Runs nothing: every range is done at once."""

    parallelism = 2

    def run(self, _group: str, ranges: list[PlannedRange], _task: Any) -> list[RangeManifest]:
        return [RangeManifest(one.start, one.end, 0) for one in ranges]


def test_no_range_has_two_versions_of_the_settings() -> None:
    frames = [FrameSummary(Position(1, n), 10, True) for n in range(6)]
    frames += [FrameSummary(Position(2, n), 10, True) for n in range(6)]
    begins = [Position(0, 0), Position(1, 2), Position(1, 6), Position(2, 3)]  # one at the end of a ledger
    job = Job("s", "d", "lake", "r", "1:0", "csv", settings=tuple(_version(since) for since in begins))
    assert Job.from_json(job.to_json()) == job
    given = iter([frames, []])
    planner = Planner(lambda: next(given, []), PlanSettings(batch_bytes_max=1 << 20, range_bytes_min=10))
    covered: list[tuple[Position, Position]] = []
    with ThreadPoolExecutor(1) as threads:
        batches = Batches(_Engine(), threads, job, planner)  # type: ignore[arg-type]
        while batches.start_next():
            batch = batches.next(60)
            assert batch is not None
            covered += [(one.start, one.end) for one in batch.manifests]
    starts = [start for start, _ in covered]
    assert set(begins[1:]) <= set(starts), starts
    assert all(
        start == Position(end.ledger_id, end.entry_id + 1) for (_, end), start in zip(covered, starts[1:], strict=False)
    )
    for start, end in covered:
        assert not any(start < begin <= end for begin in begins), (start, end)
    assert covered[-1][1] == Position(2, 5)


def _version(since: Position) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(SettingsVersion(since, 1, RowSettings()).to_json()))
    return made
