"""Every metric of Penstock, in one file, so that names and labels can be read at a glance.

A label has few values by construction: a changefeed's name, a reason from a fixed list. Never a table, dispatcher, path
or position: a source may have thousands of tables (`penstock status` shows what one of them does). The names of the
flush and spool metrics follow TiCDC's storage sink, so that its dashboards can be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.observe.weighted import WeightedHistogram

RECOVERY_WAYS = ("empty", "checkpoint", "older checkpoint", "replay")
FLUSH_REASONS = ("size", "interval", "key", "ddl", "close", "intent", "quota", "error")

_BYTES = tuple(float(1 << shift) for shift in range(12, 31, 2))  # 4 KiB to 1 GiB
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_MEMORY_SECONDS = (0.000001, 0.000003, 0.00001, 0.00003, 0.0001, 0.001, 0.01)  # of what needs no disk
_FAST_SECONDS = (0.0001, 0.0003, *_SECONDS)  # reads and syncs of a good disk are below a millisecond


class LogTotals(NamedTuple):
    """Figures of the logs and cursors of this process, summed over all of them. Computed at each scrape."""

    logs: int = 0
    ledgers: int = 0
    entries: int = 0
    messages: int = 0
    stored_bytes: int = 0
    body_bytes: int = 0
    skipped_entries: int = 0
    waiting_bytes: int = 0
    deleting_ledgers: int = 0
    cursors: int = 0
    backlog_entries: int = 0
    backlog_entries_max: int = 0
    backlog_bytes: int = 0
    backlog_bytes_max: int = 0
    cursor_bytes: int = 0
    cursor_holes: int = 0
    cache_bytes: int = 0
    cache_hits: int = 0
    cache_misses: int = 0
    cache_evictions: int = 0
    failed_deletes: int = 0
    offloaded_ledgers: int = 0
    offloaded_bytes: int = 0
    discarded_ledgers: int = 0


_TOTALS = {
    "logs": ("log_open", "Logs that this process owns"),
    "ledgers": ("log_ledgers", "Ledgers of the logs that this process owns"),
    "entries": ("log_entries", "Entries in them"),
    "messages": ("log_messages", "Messages that these entries stand for"),
    "stored_bytes": ("log_stored_bytes", "Bytes of their frames"),
    "body_bytes": ("log_body_bytes", "Bytes of data and state changes in them"),
    "skipped_entries": ("log_skipped_entries", "Entries that cannot be read and were skipped on demand"),
    "waiting_bytes": ("log_waiting_bytes", "Bytes of appends that wait for the disk"),
    "deleting_ledgers": ("log_deleting_ledgers", "Trimmed ledgers whose files are not removed yet"),
    "offloaded_ledgers": ("log_offloaded_ledgers", "Ledgers with a complete copy in an object store"),
    "offloaded_bytes": ("log_offloaded_bytes", "Bytes of their frames"),
    "discarded_ledgers": ("log_discarded_ledgers", "Copies in object stores that are to be deleted"),
    "cursors": ("cursor_open", "Durable cursors that this process owns"),
    "backlog_entries": ("cursor_backlog_entries", "Entries that they have not acked, all together"),
    "backlog_entries_max": ("cursor_backlog_entries_max", "Entries that the slowest of them has not acked"),
    "backlog_bytes": ("cursor_backlog_bytes", "Bytes of frames that they have not acked, all together, about"),
    "backlog_bytes_max": (
        "cursor_backlog_bytes_max",
        "Bytes of frames that the one with the most has not acked, about",
    ),
    "cursor_bytes": ("cursor_record_bytes", "Bytes of their record logs"),
    "cursor_holes": ("cursor_holes", "Runs of acked entries after their mark-delete positions"),
    "cache_bytes": ("log_cache_bytes", "Bytes in the cache of reads"),
    "cache_hits": ("log_cache_hits", "Reads served from memory"),
    "cache_misses": ("log_cache_misses", "Reads that needed the disk"),
    "cache_evictions": ("log_cache_evictions", "Runs of entries that left the cache to make room"),
    "failed_deletes": ("log_failed_deletes", "Deletes of trimmed ledgers that failed and are tried again"),
}


class SpoolTotals(NamedTuple):
    """Figures of one changefeed's spool. Computed at each scrape."""

    memory_bytes: int = 0
    disk_bytes: int = 0
    bytes: int = 0
    staged_bytes: int = 0
    segment_bytes: int = 0
    segments: int = 0
    items: int = 0
    memory_items: int = 0
    disk_items: int = 0
    suppressed: int = 0
    disk_alarm: int = 0
    pending_wakes: int = 0
    wake_calls: int = 0
    wake_suppressed: int = 0
    spilled_bytes: int = 0
    read_back_bytes: int = 0
    rotations: int = 0
    rewritten_segments: int = 0
    disk_errors: int = 0
    dropped_items: int = 0


_SPOOL_TOTALS = {
    "memory_bytes": ("spool_memory_bytes", "Bytes held in memory, staged and read back ones included"),
    "disk_bytes": ("spool_disk_bytes", "Bytes on disk that are not at the sink yet"),
    "bytes": ("spool_bytes", "Bytes in memory and on disk"),
    "staged_bytes": ("spool_staged_bytes", "The part of them that is staged and not published"),
    "segment_bytes": ("spool_segment_bytes", "Bytes of the segment files on the real disk"),
    "segments": ("spool_segments", "Segment files"),
    "items": ("spool_items", "Payloads in the spool"),
    "memory_items": ("spool_memory_items", "The part of them whose bytes are in memory"),
    "disk_items": ("spool_disk_items", "The part of them whose bytes are on disk"),
    "suppressed": ("spool_suppressed", "1 while wakes are suppressed and no new batch is planned"),
    "disk_alarm": (
        "spool_disk_alarm",
        "1 while nothing can be spilled: the disk is full, fails, or the quota is used up",
    ),
    "pending_wakes": ("spool_pending_wakes", "Wakes that are kept back"),
    "wake_calls": ("wake_calls", "Wakes that ran"),
    "wake_suppressed": ("wake_suppressed", "Wakes that were kept back first"),
    "spilled_bytes": ("spool_spilled_bytes", "Bytes of payloads moved to disk"),
    "read_back_bytes": ("spool_read_back_bytes", "Bytes of payloads read back from disk"),
    "rotations": ("spool_rotate", "Segments that were closed"),
    "rewritten_segments": (
        "spool_rewritten_segments",
        "Segments that were rewritten because little of them was in use",
    ),
    "disk_errors": ("spool_disk_errors", "Spills that failed and are tried again"),
    "dropped_items": ("spool_dropped_items", "Payloads and markers that ended without being written"),
}
_SPOOL_COUNTERS = tuple(SpoolTotals._fields[SpoolTotals._fields.index("wake_calls") :])


class StateTotals(NamedTuple):
    """Figures of the states of this process, summed over all of them. Computed at each scrape."""

    states: int = 0
    size_bytes: int = 0
    reads: int = 0
    writes: int = 0
    wal_bytes: int = 0
    iterations: int = 0
    iteration_age_seconds: float = 0.0


_STATE_TOTALS = {
    "states": ("state_open", "States that this process owns"),
    "size_bytes": ("state_bytes", "Bytes of their keys and values, about"),
    "reads": ("state_reads", "Reads of single keys"),
    "writes": ("state_writes", "Keys put or deleted"),
    "wal_bytes": ("state_wal_bytes", "Bytes of state changes appended to logs"),
    "iterations": ("state_iterations", "Iterations that are open: each keeps the state of its moment"),
    "iteration_age_seconds": ("state_iteration_age_seconds", "Age of the oldest of them"),
}
_TOTAL_COUNTERS = ("cache_hits", "cache_misses", "cache_evictions", "failed_deletes", "reads", "writes", "wal_bytes")


class _TotalsCollector(Collector):
    def __init__(self, read: Callable[[], LogTotals | StateTotals], names: dict[str, tuple[str, str]]) -> None:
        self._read = read
        self._names = names

    def collect(self) -> Iterator[Metric]:
        for field, value in self._read()._asdict().items():
            name, what = self._names[field]
            family = CounterMetricFamily if field in _TOTAL_COUNTERS else GaugeMetricFamily
            yield family(f"penstock_{name}", what, value=value)

    def describe(self) -> Iterator[Metric]:
        return iter(())  # else registering would call `collect`, which reads the logs


class _SpoolCollector(Collector):
    """The spools of this process by changefeed: enqueueing costs nothing extra."""

    def __init__(self) -> None:
        self.spools: dict[str, Callable[[], SpoolTotals]] = {}

    def collect(self) -> Iterator[Metric]:
        figures = {changefeed: read()._asdict() for changefeed, read in list(self.spools.items())}
        for field, (name, what) in _SPOOL_TOTALS.items():
            family = CounterMetricFamily if field in _SPOOL_COUNTERS else GaugeMetricFamily
            metric = family(f"penstock_{name}", what, labels=["changefeed"])
            for changefeed, totals in figures.items():
                metric.add_metric([changefeed], totals[field])
            yield metric

    def describe(self) -> Iterator[Metric]:
        return iter(())


class Metrics:
    """The metrics of one process. A test makes its own; a process uses `METRICS`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()

        self.log_append_entries = self._counter("log_append_entries", "Entries appended, durable")
        self.log_append_bytes = self._counter("log_append_bytes", "Bytes of frames appended")
        self.log_append_body_bytes = self._counter("log_append_body_bytes", "Bytes of data and state changes appended")
        self.log_append_messages = self._counter("log_append_messages", "Messages that the appended entries stand for")
        self.log_append_seconds = self._weighted(
            "log_append_duration_seconds",
            "Time of each entry from the call to durable; those of a group count as if they had come evenly",
            _FAST_SECONDS,
        )
        self.log_sync_seconds = self._histogram(
            "log_sync_duration_seconds", "Time of one group commit's write and sync", _FAST_SECONDS
        )
        self.log_group_entries = self._histogram(
            "log_group_entries", "Entries in one group commit", tuple(float(1 << shift) for shift in range(0, 15, 2))
        )
        self.log_switch_seconds = self._histogram(
            "log_ledger_switch_duration_seconds", "Time from one ledger to the next, appends waiting", _SECONDS
        )
        self.log_failed_ledgers = self._counter("log_failed_ledgers", "Ledgers given up because a write of them failed")
        self.log_maintenance_failures = self._counter(
            "log_maintenance_failures", "Rounds of a log's maintenance that failed and are tried again"
        )
        self.log_passed_over_entries = self._counter(
            "log_passed_over_entries",
            "Entries that readers and cursors passed over, because they were skipped on demand",
        )
        self.log_stalls = self._counter("log_stalls", "Writes or syncs that the disk did not answer in time")
        self.log_read_seconds = self._histogram(
            "log_read_duration_seconds", "Time of one read of a ledger, checksums included", _FAST_SECONDS
        )
        self.log_read_entry_seconds = self._weighted(
            "log_read_entry_duration_seconds",
            "Time until each entry was at hand, from memory or from the disk: that of the run in which it came",
            (*_MEMORY_SECONDS[:-2], *_FAST_SECONDS[1:]),
        )
        self.log_read_bytes = self._counter("log_read_bytes", "Bytes read from ledgers, past the cache")
        self.log_offload_ledgers = self._counter("log_offload_ledgers", "Ledgers copied to an object store")
        self.log_offload_bytes = self._counter("log_offload_bytes", "Bytes put into object stores for them")
        self.log_offload_seconds = self._histogram(
            "log_offload_duration_seconds", "Time from the mark of a ledger to its complete copy", _SECONDS
        )
        self.log_offload_put_seconds = self._histogram(
            "log_offload_put_duration_seconds", "Time of one put of a part or an index", _SECONDS
        )
        self.log_offload_errors = self._counter("log_offload_errors", "Offloads of a ledger that failed")
        self.log_offload_deletes = self._counter("log_offload_deletes", "Offloaded copies deleted")
        self.log_offload_read_seconds = self._histogram(
            "log_offload_read_duration_seconds", "Time of one read of an offloaded ledger", _SECONDS
        )
        self.log_offload_index_read_seconds = self._histogram(
            "log_offload_index_read_duration_seconds", "Time of one read of an offloaded ledger's index", _SECONDS
        )
        self.log_offload_read_bytes = self._counter("log_offload_read_bytes", "Bytes read of offloaded ledgers")
        self.log_offload_read_errors = self._counter(
            "log_offload_read_errors", "Reads of offloaded ledgers that failed: missing, damaged or no answer"
        )
        self.cursor_persist_seconds = self._histogram(
            "cursor_persist_duration_seconds",
            "Time of the oldest ack of a group, from the call to durable",
            _FAST_SECONDS,
        )

        self.state_read_seconds = self._histogram(
            "state_read_duration_seconds", "Time of a read of state, of one in 1024", _MEMORY_SECONDS
        )
        self.state_write_seconds = self._histogram(
            "state_write_duration_seconds",
            "Time of a commit of state until it is visible, of one in 16",
            _MEMORY_SECONDS,
        )
        self.state_checkpoint_seconds = self._histogram(
            "state_checkpoint_duration_seconds", "Time of writing one checkpoint of state", _SECONDS
        )
        self.state_checkpoint_bytes = self._counter("state_checkpoint_bytes", "Bytes written into checkpoints of state")
        self.state_checkpoint_failures = self._counter("state_checkpoint_failures", "Checkpoints that failed")
        self.state_scrubbed_bytes = self._counter(
            "state_scrubbed_bytes", "Bytes of checkpoints read to look for damage"
        )
        self.state_damage_mended = self._counter(
            "state_damage_mended", "Damaged places that a scrub found in checkpoints, and mended"
        )
        self.state_recovery_seconds = self._histogram(
            "state_recovery_duration_seconds", "Time of opening a state, by what it was made from", _SECONDS, "way"
        )
        self.state_recovery_bytes_left = self._gauge(
            "state_recovery_bytes_left", "Bytes of the log that the recovery under way has still to read"
        )
        self.state_recovery_seconds_left = self._gauge(
            "state_recovery_seconds_left", "How long the recovery under way will still take, about"
        )

        self.rows = self._counter("rows", "Rows at the sink", "changefeed")
        self.dead_letters = self._counter(
            "dead_letters", "Rows that the format refused and that were put apart; repetitions count", "changefeed"
        )

        self.flush_total = self._counter(
            "flush", "Files written, by what made the writer write; error: tries that failed", "changefeed", "reason"
        )
        self.flush_bytes = self._histogram("flush_bytes", "Size of a written file", _BYTES, "changefeed", "reason")
        self.flush_seconds = self._histogram(
            "flush_duration_seconds", "Time from intent to progress", _SECONDS, "changefeed"
        )
        self.ddl_flush_seconds = self._histogram(
            "ddl_flush_dml_duration_seconds", "Time to write the rows before a DDL", _SECONDS, "changefeed"
        )
        self.ddl_drain_seconds = self._histogram(
            "ddl_drain_duration_seconds",
            "Time from a DDL in the spool, or its drain marker, to everything before it at the sink",
            _SECONDS,
            "changefeed",
        )
        self._spools = _SpoolCollector()
        self.registry.register(self._spools)

    def watch_logs(self, read: Callable[[], LogTotals]) -> None:
        """Calls `read` at each scrape and shows its figures: appending and reading cost nothing extra."""
        self.registry.register(_TotalsCollector(read, _TOTALS))

    def watch_states(self, read: Callable[[], StateTotals]) -> None:
        """The same for states."""
        self.registry.register(_TotalsCollector(read, _STATE_TOTALS))

    def watch_spool(self, changefeed: str, read: Callable[[], SpoolTotals]) -> None:
        """The same for the spool of a changefeed, until `forget_spool`."""
        self._spools.spools[changefeed] = read

    def forget_spool(self, changefeed: str) -> None:
        self._spools.spools.pop(changefeed, None)

    def render(self) -> bytes:
        """The text that a Prometheus server scrapes."""
        return bytes(generate_latest(self.registry))

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, namespace="penstock", registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, namespace="penstock", registry=self.registry)

    def _weighted(self, name: str, what: str, buckets: tuple[float, ...]) -> WeightedHistogram:
        return WeightedHistogram(f"penstock_{name}", what, buckets, self.registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, what, labels, namespace="penstock", registry=self.registry, buckets=buckets)


METRICS = Metrics()
