"""The harness of the benchmarks: what results.json promises to its readers."""

from __future__ import annotations

from bench.calibration import measure
from bench.result import Result
from bench.run import table


def test_a_result_has_the_promised_fields() -> None:
    result = Result("x", 30.0, "rows/s", "peer", 10.0, goal=4.0)
    assert result.to_json() == {
        "name": "x", "value": 30.0, "unit": "rows/s", "peer": "peer", "peer_value": 10.0, "ratio": 3.0, "goal": 4.0, "met": False,
    }  # fmt: skip
    assert Result("x", 40.0, "rows/s", "peer", 10.0, goal=4.0).met is True
    alone = Result("x", 1.0, "MB/s")
    assert (alone.ratio, alone.met) == (None, None)
    assert Result("x", 1.0, "MB/s", goal=2.0).met is False, "a goal without a measured peer is not met"


def test_the_calibration_measures_something() -> None:
    results = list(measure())
    assert all(result.value > 0 for result in results)
    assert table(results).row_count == len(results) == 2
