"""The contract of a state engine: bytes in namespaces, held in memory as they come, made durable by checkpoints.

An engine is not a log: what no checkpoint holds is gone with the process, and its holder replays the log's frames after the
newest checkpoint. It never sees the log. One thread applies; any thread reads; checkpoints are written on a thread of
the holder's, beside both. Everything an engine writes goes through `files`, but for an engine with an own file layer.

The order of a checkpoint: (1) `freeze`, O(1), under the holder's lock; (2) the holder waits until the log is durable up to
the last frame in it; (3) `write`. So no checkpoint ever holds what the log might still lose.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from penstock.files import Buffer
from penstock.log import StateChange
from penstock.log.position import Position


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that is durable: the state after every frame up to and including `position`."""

    position: Position
    wall_ms: int
    keys: int  # live ones
    bytes: int  # of all files that it stands on
    bytes_written: int  # by this one alone: what changed since the one before
    seconds: float  # that its writing took


class StateSnapshot(ABC):
    """A stable view while writes go on. A context manager; one that is forgotten releases what it pins."""

    @abstractmethod
    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    @abstractmethod
    def iterate(self, namespace: int, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Live keys from `start` (included) to `end` (excluded), in byte order."""

    @abstractmethod
    def namespaces(self) -> list[int]: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Frozen:
    """What was applied up to a moment, to be written as a checkpoint. Opaque to the holder."""


class StateEngine(ABC):
    name: str

    @property
    @abstractmethod
    def position(self) -> Position | None:
        """Of the checkpoint that it was opened at; None: it began empty, and every frame of the log is to be applied."""

    @abstractmethod
    def apply(self, changes: Sequence[StateChange]) -> None:
        """One batch, in order: all of it is seen by the reads after it."""

    @abstractmethod
    def apply_encoded(self, changes: Buffer) -> int:
        """The changes of a frame as they lie in it (docs/formats/frame.md), checked already. Returns how many. For replay."""

    @abstractmethod
    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    @abstractmethod
    def create_snapshot(self) -> StateSnapshot: ...

    @abstractmethod
    def restore_from_snapshot(self, snapshot: StateSnapshot) -> None:
        """The state is what the snapshot (of this or another engine) shows; the next checkpoint holds all of it."""

    @abstractmethod
    def freeze(self) -> Frozen: ...

    @abstractmethod
    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        """Makes a checkpoint durable: only what changed since the last one is written. Frozen ones are written in their order.

        A failure leaves every earlier checkpoint in force and the frozen changes readable.
        """

    @abstractmethod
    def checkpoints(self) -> list[CheckpointInfo]:
        """Those kept, newest first. The holder pins the log at the oldest."""

    @abstractmethod
    def flush(self) -> None:
        """What `write` returned for is durable already; this waits for merges that are under way."""

    @abstractmethod
    def compact(self) -> None:
        """Merges everything into as few files as the kept checkpoints allow."""

    @abstractmethod
    def estimate_size(self) -> int:
        """Bytes of live keys and values, more or less; cheap."""

    @abstractmethod
    def close(self) -> None: ...
