"""The contract of a state engine: bytes in namespaces, held in memory as they come, made durable by checkpoints.

An engine is not a log: what no checkpoint holds is gone with the process, and its holder replays the log's frames after the
newest checkpoint. It never sees the log. One thread applies at a time; any thread reads, without a lock; checkpoints are
written on a thread of the holder's, beside both. Everything an engine writes goes through `files`, but for an engine with a
file layer of its own.

The order of a checkpoint: (1) `freeze`, O(1), under the holder's lock; (2) the holder waits until the log is durable up to
the last frame in it; (3) `write`. So no checkpoint ever holds what the log might still lose.

Damage. A checkpoint whose files do not check at `open_engine` is stepped over and stands in `damaged`. Open reads only what
tells the structure; a block is checked when it is first read, and a read that meets a bad one raises `Corruption` with file
and offset. The holder then opens again with `verify=True`, which reads every byte before it trusts a checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from penstock.files import Buffer
from penstock.log import StateChange
from penstock.log.position import Position

Edits = Mapping[int, Mapping[bytes, bytes | None]]  # namespace → key → value, or None: the key goes


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint that is durable: the state after every frame up to and including `position`."""

    position: Position
    wall_ms: int
    keys: int  # live ones, exact once merged; before, a key that two runs hold counts twice
    bytes: int  # of all files that it stands on
    bytes_written: int  # by this one alone: what changed since the one before
    seconds: float  # that its writing took


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage in a file of a checkpoint."""

    file: str
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}: {self.problem}"


class StateSnapshot(ABC):
    """A stable view while writes go on. A context manager; one that is forgotten releases what it pins."""

    @abstractmethod
    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    @abstractmethod
    def iterate(self, namespace: int, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Live keys from `start` (included) to `end` (excluded), in byte order."""

    @abstractmethod
    def namespaces(self) -> list[int]:
        """Those with keys, sorted; one whose keys were all deleted may still be among them."""

    @abstractmethod
    def close(self) -> None:
        """Reads after it raise `Closed`, those under way too. Twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Frozen:
    """What was applied up to a moment, to be written as a checkpoint. Opaque to the holder."""


class StateEngine(ABC):
    """Made by `engines.open_engine`."""

    name: str

    @property
    @abstractmethod
    def position(self) -> Position | None:
        """Of the checkpoint that it was opened at; None: it began empty, and every frame of the log is to be applied."""

    @property
    @abstractmethod
    def damaged(self) -> Sequence[Finding]:
        """What was stepped over at open. With `position` None: there were checkpoints, and none of them is good."""

    @property
    @abstractmethod
    def changed_bytes(self) -> int:
        """Keys and values applied and not in any checkpoint yet: what a replay would cost, and about what memory holds."""

    @abstractmethod
    def apply(self, changes: Sequence[StateChange]) -> None:
        """One batch, in order: all of it is seen by the reads after it."""

    @abstractmethod
    def apply_edits(self, edits: Edits, size: int | None = None) -> None:
        """As `apply`, several times faster: a dict a namespace, each key once. `size`: bytes of keys and values, if known.

        The values are kept as they are, never copied; the dicts are the caller's again when this returns.
        """

    @abstractmethod
    def apply_encoded(self, changes: Buffer) -> int:
        """The changes of a frame as they lie in it (docs/formats/frame.md), checked already. Returns how many. For replay.

        Changes of several frames, joined in their order, are as good and faster.
        """

    @abstractmethod
    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    @abstractmethod
    def create_snapshot(self) -> StateSnapshot: ...

    @abstractmethod
    def restore_from_snapshot(self, snapshot: StateSnapshot) -> None:
        """The state is what the snapshot (of this or another engine) shows; the next checkpoint holds all of it.

        What was frozen before is refused by `write` from here on.
        """

    @abstractmethod
    def freeze(self) -> Frozen: ...

    @abstractmethod
    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        """Makes a checkpoint durable: only what changed since the last one is written. Frozen ones are written in their order,
        one at a time; one that was not written is part of the next.

        A failure leaves every earlier checkpoint in force and the frozen changes readable. `BadInput` at a position below
        the last one. Refused without a directory and by a reader.
        """

    @abstractmethod
    def checkpoints(self) -> list[CheckpointInfo]:
        """Those kept, newest first. The holder pins the log at the oldest. Two may be of one position: see the engine."""

    @abstractmethod
    def drop_after(self, position: Position) -> Position | None:
        """For a truncation, before the log's own: drops the checkpoints above `position`, durably, and goes back to the newest
        one left. Returns where that is (None: empty); the holder applies the frames after it again.
        """

    @abstractmethod
    def verify(self) -> Iterator[Finding]:
        """Reads every byte of every checkpoint kept, in the files as they are now."""

    @abstractmethod
    def flush(self) -> None:
        """What `write` returned for is durable already; this waits for merges under way, and raises what one failed with."""

    @abstractmethod
    def compact(self) -> None:
        """Merges everything into as few files as the kept checkpoints allow: what all of them share becomes one."""

    @abstractmethod
    def estimate_size(self) -> int:
        """Bytes of live keys and values, more or less; cheap."""

    @abstractmethod
    def close(self) -> None:
        """Waits for a merge under way. Writes nothing. Snapshots stay readable until they are closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
