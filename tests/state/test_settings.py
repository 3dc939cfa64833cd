"""Every tuning key of a state is documented, and so is every metric; nonsense is refused by name."""

from __future__ import annotations

import dataclasses
import gc
import re
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.log import Log
from penstock.observe.metrics import METRICS
from penstock.state import BucketState, StateSettings

PAGE = (Path(__file__).parents[2] / "docs" / "state.md").read_text()


def test_every_setting_and_metric_is_documented() -> None:
    names = [field.name for field in dataclasses.fields(StateSettings)]
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    shown = set(re.findall(r"^# HELP penstock_state_(\w+)", METRICS.render().decode(), re.MULTILINE))
    known = {name.removesuffix("_total").removesuffix("_created") for name in shown} - {"open"}
    assert len(known) > 9
    assert [name for name in sorted(known) if f"_{name}`" not in PAGE] == []


@pytest.mark.parametrize(("name", "value"), [("checkpoints_kept", 1), ("merge_ratio", 0.0), ("checkpoint_bytes", 0)])
def test_nonsense_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(BadInput, match=name):
        dataclasses.replace(StateSettings(), **{name: value})


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log, pytest.raises(BadInput, match="no state engine 'paper'"):
        BucketState.open(log, StateSettings(engine="paper"))


def sample(name: str, **labels: str) -> float:
    return METRICS.registry.get_sample_value(f"penstock_state_{name}", labels) or 0.0


def test_metrics_count_what_happens(tmp_path: Path) -> None:
    before = {name: sample(name) for name in ("reads_total", "writes_total", "wal_bytes_total", "open")}
    checkpoints, recoveries = (
        sample("checkpoint_duration_seconds_count"),
        sample("recovery_duration_seconds_count", way="checkpoint"),
    )
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        raw = state.raw_store("s", "o")
        raw.write({b"%d" % n: b"value" for n in range(10)}).result(5)
        for n in range(2000):
            raw.get(b"%d" % n)
        state.checkpoint()
        assert sample("open") == before["open"] + 1
        assert sample("bytes") > 50
        kept = raw.iterate()
        next(kept)
        assert sample("iterations") == 1
        assert sample("iteration_age_seconds") > 0
        kept.close()
        raw.iterate()  # forgotten
        gc.collect()
        assert sample("iterations") == 0
    assert sample("open") == before["open"]
    assert sample("reads_total") - before["reads_total"] == 2000  # counters do not go back with a close
    assert sample("writes_total") - before["writes_total"] == 10
    assert sample("wal_bytes_total") - before["wal_bytes_total"] > 10 * 32
    assert sample("read_duration_seconds_count") >= 1
    assert sample("write_duration_seconds_count") >= 1
    assert sample("checkpoint_duration_seconds_count") == checkpoints + 1
    assert sample("checkpoint_bytes_total") > 0
    with Log.open(tmp_path / "log") as log:
        BucketState.open(log)
    assert sample("recovery_duration_seconds_count", way="checkpoint") == recoveries + 1
    assert sample("recovery_bytes_left") == 0
