"""Opens either engine in a directory, as often as a test likes; and the steps that tests of engines share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.log import Position, StateChange
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


def put(engine: StateEngine, **values: str | None) -> None:
    engine.apply([StateChange(1, k.encode(), None if v is None else v.encode()) for k, v in values.items()])


def content(engine: StateEngine, namespace: int = 1) -> dict[bytes, bytes]:
    with engine.create_snapshot() as snapshot:
        return dict(snapshot.iterate(namespace))


def checkpoint(engine: StateEngine, entry: int) -> None:
    engine.write(engine.freeze(), Position(1, entry))
