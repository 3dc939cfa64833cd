"""Every setting and every metric of a state is documented; values that make no sense are refused by name."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.observe.metrics import METRICS
from penstock.state import StateSettings

PAGE = (Path(__file__).parents[2] / "docs" / "state.md").read_text()


def test_every_setting_and_metric_is_documented() -> None:
    names = [field.name for field in dataclasses.fields(StateSettings)]
    assert [name for name in names if f"`{name}`" not in PAGE] == []
    shown = set(re.findall(r"^# HELP penstock_state_(\w+)", METRICS.render().decode(), re.MULTILINE))
    known = {name.removesuffix("_total").removesuffix("_created") for name in shown} - {"open"}
    assert len(known) > 9
    assert [name for name in sorted(known) if f"_{name}`" not in PAGE] == []


_WRONG = ("x", b"x", [], -1, 0.0, float("nan"), float("inf"), object())


@pytest.mark.parametrize("field", dataclasses.fields(StateSettings), ids=lambda field: field.name)
def test_nonsense_is_refused_by_name(field: dataclasses.Field[object]) -> None:
    for value in _WRONG:
        with pytest.raises(BadInput, match=f"^{field.name} is"):
            StateSettings(**{field.name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("checkpoints_kept", 1), ("merge_runs_max", 0), ("checkpoint_bytes", 0)])
def test_what_is_too_small_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(BadInput, match=name):
        StateSettings(**{name: value})  # type: ignore[arg-type]
