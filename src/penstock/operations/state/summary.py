"""The stores and checkpoints of a state, for `penstock state ls`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.log import Position
from penstock.log.ledgers.holds import pins
from penstock.operations.log.locate import open_reader
from penstock.operations.state.opening import location_of, open_state
from penstock.state import CheckpointInfo
from penstock.state.checkpoints.recovery import PIN, START_PIN
from penstock.state.reader import find_checkpoints
from penstock.state.types.registry import Registration


@dataclass(frozen=True, slots=True)
class StoreLine:
    """A store, with the number of its keys and the bytes of keys and values."""

    registration: Registration
    keys: int
    bytes: int

    @property
    def name(self) -> str:
        return str(self.registration.namespace)


@dataclass(frozen=True, slots=True)
class StateSummary:
    """A state as `penstock state ls` shows it. `pinned`: entries from there on are kept for its sake; None: no pin
    yet."""

    directory: Path
    engine: str
    position: Position
    stores: list[StoreLine]
    checkpoints: list[CheckpointInfo]
    pinned: Position | None


def summarize_state(path: Path) -> StateSummary:
    """Every store with its size, and the checkpoints; as of the durable end."""
    with open_state(path) as state, open_reader(path) as reader:
        stores = []
        with state.engine.create_snapshot() as snapshot:
            for registration in state.stores():
                keys = size = 0
                for key, value in snapshot.iterate(registration.number):
                    keys += 1
                    size += len(key) + len(value)
                stores.append(StoreLine(registration, keys, size))
        held = pins(reader.metadata, reader.name)
        location = location_of(reader)
        return StateSummary(
            reader.directory,
            location.settings.engine,
            state.position,
            stores,
            find_checkpoints(location),
            min((held[name] for name in (PIN, START_PIN) if name in held), default=None),
        )
