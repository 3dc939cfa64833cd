"""What an owner can say of its log at a moment."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.log.append.appender import Appender
from penstock.log.ledgers.info import LedgerList
from penstock.log.offload.offloader import Offloader, OffloadProgress
from penstock.log.position import Position
from penstock.log.read.cache import ReadCache
from penstock.log.read.positions import LedgerViews
from penstock.log.retention.trim import Trimmer


@dataclass(frozen=True, slots=True)
class LogStatistics:
    """A log as its owner sees it now. `bytes` are those of frames, without the space that is reserved ahead;
    `body_bytes` what callers appended, data and state changes."""

    entries: int
    messages: int  # that the entries stand for
    bytes: int
    body_bytes: int
    ledgers: int
    skipped_entries: int  # that cannot be read and were skipped on demand; `entries` and the others count them too
    first: Position
    last_confirmed: Position
    waiting_bytes: int
    appended_entries: int  # since the log was opened, as the next five
    appended_messages: int
    appended_bytes: int
    commits: int
    rolls: int
    ledger_switches: int
    failed_deletes: int
    deleting: int  # ledgers that are trimmed but not removed yet
    cache_hits: int  # of the process, as the next three
    cache_misses: int
    cache_evictions: int
    cache_bytes: int
    terminated: bool
    offloaded_ledgers: int = 0  # with a complete copy in an object store
    offloaded_bytes: int = 0
    discarded: int = 0  # copies in object stores that are to be deleted
    offload_failures: int = 0  # since the log was opened
    offload_error: str = ""  # of the last round, where it failed
    offloading: OffloadProgress | None = None  # what is being copied now
    state: str = "open"  # as `Log.state`
    error: str = ""  # why nothing is appended any more
    maintenance_failures: int = 0  # since the log was opened
    maintenance_error: str = ""  # of the last round, where it failed


def gather_statistics(
    *,
    listed: LedgerList,
    views: LedgerViews,
    appender: Appender,
    trimmer: Trimmer,
    offloader: Offloader,
    cache: ReadCache,
    state: str,
    error: BaseException | None,
    maintenance_error: BaseException | None,
    maintenance_failures: int,
) -> LogStatistics:
    counters = appender.counters
    return LogStatistics(
        entries=views.entries,
        messages=sum(view.messages for view in views),
        bytes=sum(view.frames_end for view in views),
        body_bytes=sum(view.body_bytes for view in views),
        ledgers=len(views),
        skipped_entries=sum(last - first + 1 for info in views.skipped for first, last in info.skipped),
        first=views.first,
        last_confirmed=appender.last,
        waiting_bytes=appender.waiting_bytes,
        appended_entries=counters.entries,
        appended_messages=counters.messages,
        appended_bytes=counters.bytes,
        commits=counters.groups,
        rolls=counters.rolls,
        ledger_switches=counters.switches,
        failed_deletes=trimmer.failed_deletes + offloader.failed_deletes,
        deleting=len(listed.deleting),
        cache_hits=cache.hits,
        cache_misses=cache.misses,
        cache_evictions=cache.evictions,
        cache_bytes=cache.bytes,
        terminated=listed.terminated,
        offloaded_ledgers=sum(info.is_offloaded for info in listed.ledgers),
        offloaded_bytes=sum(info.frames_end for info in listed.ledgers if info.is_offloaded),
        discarded=len(listed.discarded),
        offload_failures=offloader.failures,
        offload_error=str(offloader.last_error or ""),
        offloading=offloader.progress,
        state=str(state),
        error=str(error or ""),
        maintenance_failures=maintenance_failures,
        maintenance_error=str(maintenance_error or ""),
    )
