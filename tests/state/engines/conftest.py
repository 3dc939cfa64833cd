"""Both engines, or `native` alone, as fixtures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.state.engines.opener import Opener


@pytest.fixture(params=["native", "rocksdb"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    opener = Opener(request.param, tmp_path / "state")
    yield opener
    opener.close()


@pytest.fixture
def native(tmp_path: Path) -> Iterator[Opener]:
    opener = Opener("native", tmp_path / "state")
    yield opener
    opener.close()
