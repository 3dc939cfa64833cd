"""A run's status as text for Prometheus: one family of gauges or counters each, labelled by changefeed or child.

The processes have metrics of their own, under other names (process_metrics.py); all are served together.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.supervisor.status import RunStatus, is_well

Sample = tuple[dict[str, str], float]


def run_metrics(status: RunStatus) -> str:
    """The text. Names of changefeeds and processes are the only labels."""
    feeds, children = status.changefeeds, status.children
    source, log = status.source, status.log
    lines: list[str] = []

    def family(name: str, kind: str, what: str, samples: Iterable[Sample]) -> None:
        lines.extend(exposed(f"penstock_run_{name}", kind, what, samples))

    def of_feed(name: str, kind: str, what: str, field: str) -> None:
        samples = [({"changefeed": feed.name}, float(getattr(feed, field) or 0)) for feed in feeds]
        family(name, kind, what, samples)

    family("well", "gauge", "1 while nothing is degraded, as penstock status says", [({}, float(is_well(status)))])
    family("uptime_seconds", "gauge", "Since the run began", [({}, (status.now_ms - status.started_ms) / 1000)])
    family("log_bytes", "gauge", "Files of the log", [({}, float(log.bytes))])
    family("capture_paused", "gauge", "1 while the log has no room", [({}, float(bool(log.paused)))])
    family("source_well", "gauge", "1 while the source sends", [({}, float(not source.problem))])
    if source.heard_ms is not None:
        age = max(0.0, (status.now_ms - source.heard_ms) / 1000)
        family("source_last_event_age_seconds", "gauge", "Since the source sent something last", [({}, age)])
    if source.headroom is not None and source.headroom.seconds is not None:
        left = source.headroom.seconds
        family("source_binlog_headroom_seconds", "gauge", "Until the server purges what capture needs", [({}, left)])
    of_feed("lag_seconds", "gauge", "Age of the oldest commit that is not at the sink", "lag_seconds")
    of_feed("backlog_entries", "gauge", "Entries of the log that are not at the sink", "backlog_entries")
    of_feed("rows_total", "counter", "Rows at the sink, of all runs", "rows")
    of_feed("files_total", "counter", "Files at the sink, of all runs", "files")
    of_feed("bytes_total", "counter", "Bytes at the sink, of all runs", "bytes")
    of_feed("tables", "gauge", "Tables with rows at the sink", "tables")
    family("parked_tables", "gauge", "Tables that wait for penstock resume", [({}, float(status.parked_count))])
    family(
        "child_up",
        "gauge",
        "1 while the process works",
        [({"process": child.name}, float(child.state == "running")) for child in children],
    )
    family(
        "child_restarts_total",
        "counter",
        "Starts of the process after its first",
        [({"process": child.name}, float(child.restarts)) for child in children],
    )
    return "\n".join(lines) + "\n"


def exposed(name: str, kind: str, what: str, samples: Iterable[Sample]) -> list[str]:
    """The lines of one family."""
    found = [f"{name}{_labels(labels)} {value!r}" for labels, value in samples]
    return [f"# HELP {name} {what}", f"# TYPE {name} {kind}", *found]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
