"""What a run refuses to be started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.supervisor.settings import RunSettings


def test_settings_without_a_sink_are_refused() -> None:
    with pytest.raises(BadInput, match="no sink"):
        RunSettings(Path("x"), {}, {})
    with pytest.raises(BadInput):
        RunSettings(Path("x"), {}, {"../up": {}})
