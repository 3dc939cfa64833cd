"""The harness of the benchmarks: what results.json promises to its readers."""

from __future__ import annotations

import json
from pathlib import Path

from bench import raw_writer
from bench.calibration import measure
from bench.log import append_all
from bench.result import Result
from bench.run import GROUPS, RESULTS, keep, table
from penstock.log import Log


def test_a_result_has_the_promised_fields() -> None:
    result = Result("x", 30.0, "rows/s", "peer", 10.0, goal=4.0)
    assert result.to_json() == {
        "name": "x", "value": 30.0, "unit": "rows/s", "peer": "peer", "peer_value": 10.0, "ratio": 3.0, "goal": 4.0,
        "goal_kind": "ratio", "met": False,
    }  # fmt: skip
    assert Result("x", 40.0, "rows/s", "peer", 10.0, goal=4.0).met is True
    alone = Result("x", 1.0, "MB/s")
    assert (alone.ratio, alone.met) == (None, None)
    assert Result("x", 1.0, "MB/s", goal=2.0).met is False, "a goal without a measured peer is not met"
    assert Result("x", 5.0, "/s", goal=4.0, goal_kind="least").met is True
    assert Result("x", 5.0, "ms", "peer", 1.0, goal=4.0, goal_kind="most").met is False
    small = Result("x", 1.0, "µs", "peer", 5.0, goal=0.3, goal_kind="ratio-most")
    assert (small.met, small.goal_text()) == (True, "at most 0.3×")
    assert Result("x", 2.0, "µs", "peer", 5.0, goal=0.3, goal_kind="ratio-most").met is False


def test_the_file_keeps_other_groups_and_the_order(tmp_path: Path) -> None:
    path = tmp_path / "results.json"

    def rows() -> list[tuple[str, str, float]]:
        return [(row["group"], row["name"], row["value"]) for row in json.loads(path.read_text())]

    keep(path, "pipeline", [Result("a", 1.0, "s"), Result("b", 2.0, "s"), Result("b", 3.0, "s", "a peer", 1.0)])
    keep(path, "log", [Result("a", 4.0, "s"), Result("old", 5.0, "s")])
    keep(path, "state", [Result("c", 6.0, "s")])
    keep(path, "log", [Result("new", 8.0, "s"), Result("a", 7.0, "s")])
    first = [("pipeline", "a", 1.0), ("pipeline", "b", 2.0), ("pipeline", "b", 3.0)]
    assert rows() == [*first, ("log", "a", 7.0), ("log", "new", 8.0), ("state", "c", 6.0)]
    keep(path, "pipeline", [Result("b", 9.0, "s", "a peer", 1.0)])
    assert rows()[0] == ("pipeline", "b", 9.0)
    assert len(rows()) == 4


def test_every_row_of_the_file_names_its_group() -> None:
    rows = json.loads(RESULTS.read_text())
    assert rows
    assert {row["group"] for row in rows} <= set(GROUPS)


def test_the_calibration_measures_something() -> None:
    results = list(measure())
    assert all(result.value > 0 for result in results)
    assert table(results).row_count == len(results) == 2


def test_the_work_of_the_log_is_whole(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        append_all(log, b"x" * 100, 25, 10)
        assert log.statistics().entries == 25
    (ledger,) = (tmp_path / "log").glob("ledger-*.log")
    assert raw_writer.read(ledger) > 0
    raw_writer.warm_memory(tmp_path / "warm", 10_000)
    assert min(raw_writer.write(tmp_path / "raw", 10_000, 3_000)) > 0
    assert len(raw_writer.latencies(tmp_path / "raw", 100, 3)) == 3
    assert not (tmp_path / "raw").exists()
