"""Every setting and every metric of a state is documented; values that make no sense are refused by name."""

from __future__ import annotations

import dataclasses
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
