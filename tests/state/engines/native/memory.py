"""A native engine on files in memory, and a model of what it should hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.clock import ManualClock
from penstock.files.memory import MemoryFiles
from penstock.log import Position, StateChange
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings

DIRECTORY = Path("/log/state")
Content = dict[tuple[int, bytes], bytes]


def opened(files: MemoryFiles, **options: Any) -> StateEngine:
    settings = options.pop("settings", StateSettings(merge_in_background=False))
    return open_engine("native", DIRECTORY, files=files, clock=ManualClock(), settings=settings, **options)


def content(engine: StateEngine) -> Content:
    """Everything that the engine holds, by iteration and by lookup, which must agree."""
    with engine.create_snapshot() as snapshot:
        found = {(n, key): value for n in snapshot.namespaces() for key, value in snapshot.iterate(n)}
    assert {place: engine.get(*place) for place in found} == found
    return found


def batch(number: int) -> list[StateChange]:
    """New keys, changed ones and deleted ones, in two namespaces; some values longer than a page."""
    changes = [StateChange(1, b"own-%d" % number, b"%d" % number * 3), StateChange(1, b"common", b"%d" % number)]
    changes.append(StateChange(2, b"long-%d" % (number % 2), bytes([number % 256]) * (5000 if number % 3 == 0 else 10)))
    changes.append(StateChange(1, b"own-%d" % (number - 2), None))
    return changes


def after(model: Content, changes: list[StateChange]) -> Content:
    model = dict(model)
    for namespace, key, value, _, _ in changes:
        if value is None:
            model.pop((namespace, key), None)
        else:
            model[namespace, key] = value
    return model


def at(number: int) -> Position:
    return Position(1, number)
