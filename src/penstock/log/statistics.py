"""What an owner can say of its log at a moment."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.offload.offloader import OffloadProgress
from penstock.log.position import Position


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """A log as its owner sees it now. Bytes are those of frames, not of what is reserved ahead."""

    entries: int
    bytes: int
    ledgers: int
    first: Position
    last_confirmed: Position
    waiting_bytes: int
    appended_entries: int  # since it was opened, as the next four
    appended_bytes: int
    commits: int
    rolls: int
    ledger_switches: int
    failed_deletes: int
    deleting: int  # ledgers that are trimmed but not removed yet
    cache_hits: int  # of the process, as the next two
    cache_misses: int
    cache_bytes: int
    terminated: bool
    offloaded_ledgers: int = 0  # with a complete copy in an object store
    offloaded_bytes: int = 0
    discarded: int = 0  # copies in object stores that are to be deleted
    offload_failures: int = 0  # since it was opened
    offload_error: str = ""  # of the last round, where it failed
    offloading: OffloadProgress | None = None  # what is being copied now
