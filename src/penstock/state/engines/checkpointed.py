"""What engines with checkpoints share: how they are opened, what `write` refuses, how a checkpoint replaces layers."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import Clock
from penstock.errors import BadInput, Closed, NotSupported
from penstock.files import Files
from penstock.log.position import Position
from penstock.state.engines.engine import CheckpointInfo, Frozen
from penstock.state.engines.layered import FrozenLayers, LayeredEngine
from penstock.state.engines.overlay import Base, Layer, Stack, closed
from penstock.state.settings import StateSettings


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine is opened; `open_engine` says what each field means."""

    directory: Path
    files: Files
    clock: Clock
    settings: StateSettings
    read_only: bool
    at: Position | None
    verify: bool


class CheckpointedEngine(LayeredEngine):
    """Layers in memory over the newest of the checkpoints in a directory.

    Two locks, taken in this order: `_disk` (the directory and the list of checkpoints), `_lock` (the layers).
    """

    def __init__(self, options: EngineOptions) -> None:
        super().__init__()
        self._directory = options.directory
        self._files = options.files
        self._clock = options.clock
        self._settings = options.settings
        self._read_only = options.read_only
        self._disk = threading.Lock()
        self._position: Position | None = None
        self._abandoned = False

    @property
    def position(self) -> Position | None:
        return self._position

    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        with self._disk:
            self._refuse_reader("a checkpoint")
            if self._closed:
                raise closed()
            if not isinstance(frozen, FrozenLayers) or frozen.generation != self._generation:
                raise BadInput("what was frozen belongs to a state that is no more", hint="freeze again")
            kept = self.checkpoints()
            if kept and position < kept[0].position:
                raise BadInput(
                    f"a checkpoint at {position} would lie below the one at {kept[0].position}",
                    hint="drop_after first, if the log was truncated",
                )
            stack = self._stack  # read once: layers and base must be of one state
            layers = [layer for layer in frozen.layers if layer in stack.layers]
            if kept and kept[0].position == position and not layers:
                info = kept[0]
            else:
                info = self._write(frozen, layers, stack.base, position)
        self._retired.drain()
        return info

    def abandon(self) -> None:
        self._abandoned = True

    def _check_not_abandoned(self) -> None:
        """Called before each change of the directory that follows something slow."""
        if self._abandoned:
            raise Closed("the state was closed while this was written: the directory is not touched any more")

    def drop_after(self, position: Position) -> Position | None:
        self._refuse_reader("a truncation")
        self.flush()
        with self._disk:
            self._drop_after(position)
            return self._position

    @abstractmethod
    def _write(self, frozen: FrozenLayers, layers: Sequence[Layer], base: Base, position: Position) -> CheckpointInfo:
        """Makes `base` with `layers` (newest first) over it a checkpoint, and calls `_put_below`. `_disk` held."""

    @abstractmethod
    def _drop_after(self, position: Position) -> None:
        """Drops checkpoints above `position`, durably, and calls `_go_to` with the newest one left. `_disk` held."""

    def _put_below(self, frozen: FrozenLayers, layers: Sequence[Layer], base: Base) -> None:
        """The layers are in the checkpoint `base` now: readers find their changes there, and memory is freed."""
        with self._lock:
            if frozen.generation == self._generation:  # else the state was replaced while the checkpoint was written
                rest = tuple(layer for layer in self._stack.layers if layer not in layers)
                self._stack = Stack(rest, base)
            frozen.layers = ()

    def _go_to(self, base: Base, position: Position | None) -> None:
        """The state is that of the checkpoint at `position`; None: empty."""
        with self._lock:
            self._begin_anew(Stack((Layer(self._retired),), base))
        self._position = position

    def _refuse_reader(self, what: str) -> None:
        if self._read_only:
            raise NotSupported(f"{what} is the owner's: this state is open read-only")
