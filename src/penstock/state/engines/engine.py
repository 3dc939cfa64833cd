"""The contract of a state engine: bytes in namespaces, held in memory as they are applied, made durable by checkpoints.

An engine is not a log, and never sees one: what is in no checkpoint is gone with the process, and the engine's holder
(a bucket state) replays the log's frames after the newest checkpoint. One thread at a time applies changes; any thread
reads, without a lock; checkpoints are written on another thread, beside both. Everything that an engine writes goes
through `Files`, except for an engine with a file layer of its own.

The order of a checkpoint: (1) `freeze`, O(1), under the holder's lock; (2) the holder waits until the log is durable up
to the last frame that was applied; (3) `write`. So no checkpoint holds what the log might still lose.

Damage. A checkpoint whose files are found damaged by `open_engine` is stepped over and listed in `damaged`. Opening
reads only the structure; a page is checked when it is first read, and a read that meets a bad one raises `Corruption`
with file and offset. The holder then opens again with `verify=True`, which reads every byte before it trusts a
checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from penstock.files import Buffer
from penstock.log import StateChange
from penstock.log.position import Position

Edits = Mapping[int, Mapping[bytes, bytes | None]]  # namespace → key → value; None: the key is deleted


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A durable checkpoint: the state after every frame up to and including `position`."""

    position: Position
    wall_ms: int
    keys: int  # live ones; exact once all is merged: before, a key in two runs counts twice
    bytes: int  # of all files that belong to it, also of those that it shares with other checkpoints
    bytes_written: int  # for this checkpoint alone: what changed since the one before
    seconds: float  # that it took to write


@dataclass(frozen=True, slots=True)
class Finding:
    """Damage in a file of a checkpoint."""

    file: str
    offset: int
    problem: str

    def __str__(self) -> str:
        return f"{self.file} at {self.offset}: {self.problem}"


class StateSnapshot(ABC):
    """A stable view while writes go on. A context manager; also releases what it pins when it is garbage-collected."""

    @abstractmethod
    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    @abstractmethod
    def iterate(
        self, namespace: int, start: bytes = b"", end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Live keys from `start` (included) to `end` (excluded), in byte order; `reverse`: from the last to the first."""

    @abstractmethod
    def namespaces(self) -> list[int]:
        """The namespaces with keys, sorted. A namespace whose keys were all deleted may be among them."""

    @abstractmethod
    def close(self) -> None:
        """Later reads raise `Closed`, and so do iterations under way. Closing twice is fine."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Frozen:
    """Everything that was applied up to one moment, to be written as a checkpoint. Opaque to the holder."""


class StateEngine(ABC):
    """Made by `open_engine` (opening.py)."""

    name: str

    @property
    @abstractmethod
    def position(self) -> Position | None:
        """The position of the checkpoint that the engine started from; None: it started empty, and needs all frames."""

    @property
    @abstractmethod
    def damaged(self) -> Sequence[Finding]:
        """Why checkpoints were stepped over. If `position` is None as well, there are checkpoints, and none is good."""

    @property
    @abstractmethod
    def changed_bytes(self) -> int:
        """Bytes of keys and values in no checkpoint yet: what a replay would apply, and about what memory holds."""

    @abstractmethod
    def apply(self, changes: Sequence[StateChange]) -> None:
        """Applies one batch, in order. Reads that start after this returns see all of it."""

    @abstractmethod
    def apply_edits(self, edits: Edits, size: int | None = None) -> None:
        """As `apply`, several times faster: one dict for each namespace. `size`: bytes of keys and values, if known.

        Keys and values are kept, not copied; the dicts themselves are not kept.
        """

    @abstractmethod
    def apply_encoded(self, changes: Buffer) -> int:
        """Applies the changes of a frame in their encoded form (docs/formats/frame.md). Returns how many.

        For replay. The caller has checked the frame. Changes of several frames may be joined, in their order: that is
        faster.
        """

    @abstractmethod
    def get(self, namespace: int, key: bytes) -> bytes | None: ...

    @abstractmethod
    def get_many(self, namespace: int, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of the keys, all as of one moment: no batch is applied in between."""

    @abstractmethod
    def create_snapshot(self) -> StateSnapshot: ...

    @abstractmethod
    def restore_from_snapshot(self, snapshot: StateSnapshot) -> None:
        """Replaces the state by what the snapshot, of this or another engine, shows.

        The next checkpoint holds all of it. `write` refuses what was frozen before.
        """

    @abstractmethod
    def freeze(self) -> Frozen: ...

    @abstractmethod
    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        """Makes a durable checkpoint of what was frozen; writes only what changed since the last one.

        Frozen states are written in their order, one at a time; the changes of one that was not written become part of
        the next checkpoint. A failure leaves every earlier checkpoint in force and the frozen changes readable. Raises
        `BadInput` at a position below the last checkpoint; `NotSupported` without a directory and where it is
        read-only.
        """

    @abstractmethod
    def checkpoints(self) -> list[CheckpointInfo]:
        """The checkpoints that are kept, newest first. Two may have the same position: `native` may write the newest
        twice (docs/formats/checkpoint.md, "Merge")."""

    @abstractmethod
    def drop_after(self, position: Position) -> Position | None:
        """Drops the checkpoints above `position`, durably, and goes back to the newest one left.

        For a truncation, before the log itself is truncated. Returns the position of that checkpoint (None: the state
        is empty); the holder applies the frames after it.
        """

    @abstractmethod
    def verify(self) -> Iterator[Finding]:
        """Reads every byte of every checkpoint on the disk, and reports the damage."""

    @abstractmethod
    def scrub(self, pause: Callable[[int], None]) -> list[Finding]:
        """Reads every byte of the checkpoints in use from the disk, and returns the damage that `mend` can undo. `pause`
        is called after each portion, with its bytes. Raises `Corruption` where nothing in here can undo it: then the
        holder heals."""

    @abstractmethod
    def mend(self) -> None:
        """Writes anew what a scrub or a read found damaged. Raises `Corruption` as `scrub` does."""

    @abstractmethod
    def flush(self) -> None:
        """Waits for merges under way, and raises what one failed with. Checkpoints are durable without it."""

    @abstractmethod
    def compact(self) -> None:
        """Merges into as few files as the kept checkpoints allow: the files that all of them share become one."""

    @abstractmethod
    def estimate_size(self) -> int:
        """Bytes of live keys and values, estimated; cheap."""

    def abandon(self) -> None:  # noqa: B027 - an engine without files has nothing to leave alone
        """For a holder that cannot wait for a write under way: that write changes nothing more in the directory, which
        may have another owner by now. Any thread may call it."""

    @abstractmethod
    def close(self) -> None:
        """Waits for a merge under way. Writes no checkpoint. Snapshots stay readable until they are closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
