"""Every metric of Penstock, in this one file, so that names and labels can be read at a glance.

Labels have few values by construction: a changefeed's name, a reason out of a fixed list. Never a table, dispatcher, path
or position: a source may have thousands of tables, and what one of them does is asked for with `penstock status`.
Names of the flush and spool metrics follow TiCDC's storage sink, so that its dashboards carry over.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

FLUSH_REASONS = ("size", "interval", "directory", "ddl", "close", "intent")

_BYTES = tuple(float(1 << shift) for shift in range(12, 31, 2))  # 4 KiB to 1 GiB
_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Metrics:
    """The metrics of one process. A test makes its own; a process uses `METRICS`."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()

        self.capture_events = self._counter("capture_events", "Binlog events appended to the log")
        self.capture_bytes = self._counter("capture_bytes", "Bytes of binlog events appended to the log")
        self.capture_lag_seconds = self._gauge("capture_lag_seconds", "Age of the newest transaction in the log")

        self.log_append_bytes = self._counter("log_append_bytes", "Bytes of frames appended")
        self.log_sync_seconds = self._histogram(
            "log_sync_duration_seconds", "Time of one group commit's sync", _SECONDS
        )
        self.log_group_entries = self._histogram(
            "log_group_entries", "Entries in one group commit", tuple(float(1 << shift) for shift in range(0, 15, 2))
        )
        self.log_disk_bytes = self._gauge("log_disk_bytes", "Bytes of all ledgers on this machine")

        self.batches = self._counter("batches", "Micro-batches published", "changefeed")
        self.batch_seconds = self._histogram(
            "batch_duration_seconds", "Time of one micro-batch", _SECONDS, "changefeed"
        )
        self.rows = self._counter("rows", "Rows at the sink", "changefeed")

        self.flush_total = self._counter(
            "flush", "Files written, by what made the writer write", "changefeed", "reason"
        )
        self.flush_bytes = self._histogram("flush_bytes", "Size of a written file", _BYTES, "changefeed", "reason")
        self.flush_seconds = self._histogram(
            "flush_duration_seconds", "Time from intent to progress", _SECONDS, "changefeed"
        )
        self.ddl_flush_seconds = self._histogram(
            "ddl_flush_dml_duration_seconds", "Time to write the rows before a DDL", _SECONDS, "changefeed"
        )
        self.spool_memory_bytes = self._gauge("spool_memory_bytes", "Encoded bytes that wait in memory", "changefeed")
        self.spool_suppressed = self._gauge("spool_suppressed", "1 while no new batch is planned", "changefeed")

        self.cursor_backlog_entries = self._gauge("cursor_backlog_entries", "Entries not yet acked", "changefeed")
        self.checkpoint_lag_seconds = self._gauge("checkpoint_lag_seconds", "Age of the checkpoint", "changefeed")
        self.restarts = self._counter("restarts", "Restarts of a child process", "process")

    def render(self) -> bytes:
        """The text that a Prometheus server scrapes."""
        return bytes(generate_latest(self.registry))

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(name, what, labels, namespace="penstock", registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(name, what, labels, namespace="penstock", registry=self.registry)

    def _histogram(self, name: str, what: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, what, labels, namespace="penstock", registry=self.registry, buckets=buckets)


METRICS = Metrics()
