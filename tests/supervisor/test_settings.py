"""What a run refuses to be started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.supervisor.settings import RunSettings, reloaded_record


def test_settings_without_a_sink_are_refused() -> None:
    with pytest.raises(BadInput, match="no sink"):
        RunSettings(Path("x"), {}, {})
    with pytest.raises(BadInput):
        RunSettings(Path("x"), {}, {"../up": {}})


def test_the_record_after_a_reload_has_the_sinks_of_now_and_all_else_as_it_was() -> None:
    before = {"spark.master": "a", "sinks.lake.url": "x", "sinks.lake2.url": "y"}
    after = {"spark.master": "b", "sinks.lake2.url": "z", "sinks.raw.url": "r"}
    now = reloaded_record(before, after, ["raw"], ["lake"])
    assert now == {"spark.master": "a", "sinks.lake2.url": "y", "sinks.raw.url": "r"}
    assert reloaded_record(before, after, [], []) == before
