"""Opens either engine in a directory, as often as a test likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.state.engines.engine import StateEngine
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings


class Opener:
    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        self.settings = StateSettings(merge_in_background=False)
        self._opened: list[StateEngine] = []

    def __call__(self, **options: Any) -> StateEngine:
        engine = open_engine(self.name, self.directory, **{"settings": self.settings, **options})
        self._opened.append(engine)
        return engine

    def close(self) -> None:
        for engine in self._opened:
            engine.close()


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
