"""The metrics of all processes of a run, for one scrape.

Each process has the same families (observe/metrics.py), so each sample gets the label `process`. Delivery is asked when somebody
asks; capture and the driver, which listen to nobody, say theirs every few seconds (`ChildProcess.report_metrics`). What
the driver counts for each changefeed comes with its progress.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import PenstockError
from penstock.observe.metrics import METRICS
from penstock.process import Event
from penstock.supervisor.http.exposition import exposed

_DRIVER = {
    "rows": ("driver_rows_total", "Rows that the tasks of this driver encoded"),
    "bytes": ("driver_bytes_total", "Bytes of payloads that they staged"),
    "read_bytes": ("driver_read_bytes_total", "Bytes of the log that they read"),
    "batches": ("driver_batches_total", "Micro-batches that were published"),
    "runs": ("driver_runs_total", "Runs of the changefeed that were begun"),
}
_CAPTURE = {
    "events": ("capture_events_total", "Binlog events that this capture process appended"),
    "transactions": ("capture_transactions_total", "Transactions in them"),
    "bytes": ("capture_bytes_total", "Their bytes"),
}


class ProcessMetrics:
    """Told by the thread of the run, asked by others."""

    def __init__(self, ask_delivery: Callable[[], str]) -> None:
        self._ask_delivery = ask_delivery
        self._lock = threading.Lock()
        self._said: dict[str, str] = {}
        self._driver: dict[str, dict[str, Any]] = {}
        self._capture: dict[str, Any] = {}

    def on_event(self, process: str, event: dict[str, Any]) -> None:
        with self._lock:
            if event["event"] == Event.METRICS:
                self._said[process] = str(event.get("text", ""))
            elif event["event"] in (Event.PROGRESS, Event.CAUGHT_UP) and process == "capture":
                self._capture = event
            elif event["event"] == Event.PROGRESS and process == "driver":
                self._driver[str(event.get("changefeed"))] = event

    def on_end(self, process: str) -> None:
        """A process that is gone has no metrics."""
        with self._lock:
            self._said.pop(process, None)
            if process == "driver":
                self._driver = {}
            if process == "capture":
                self._capture = {}

    def text(self) -> str:
        """Text for Prometheus. Without the families of a process that does not answer: those of the run show that."""
        with self._lock:
            said, driver, capture = dict(self._said), dict(self._driver), dict(self._capture)
        said["run"] = METRICS.render().decode()
        with contextlib.suppress(PenstockError):
            said["delivery"] = self._ask_delivery()
        return _counted(driver, capture) + merged(said)


def _counted(driver: Mapping[str, dict[str, Any]], capture: Mapping[str, Any]) -> str:
    lines: list[str] = []
    for field, (name, what) in _CAPTURE.items():
        if isinstance(capture.get(field), int):
            lines += exposed(f"penstock_{name}", "counter", what, [({}, float(capture[field]))])
    for field, (name, what) in _DRIVER.items():
        samples = [({"changefeed": feed}, float(event.get(field) or 0)) for feed, event in driver.items()]
        lines += exposed(f"penstock_{name}", "counter", what, samples) if samples else []
    stages = [
        ({"changefeed": feed, "stage": str(stage)}, float(seconds))
        for feed, event in driver.items()
        for stage, seconds in dict(event.get("stage_seconds") or {}).items()
    ]
    if stages:
        lines += exposed("penstock_driver_stage_seconds_total", "counter", "Time of the tasks by stage", stages)
    return "".join(f"{line}\n" for line in lines)


def merged(texts: Mapping[str, str]) -> str:
    """The texts of several processes as one: each family once, each sample with the label `process`."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for process, text in texts.items():
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                family = line.split(" ", 3)[2]
                known = heads.setdefault(family, [])
                if not any(one.startswith(line[:7]) for one in known):
                    known.append(line)
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(_labelled(line, process))
    lines = [line for family, found in samples.items() for line in (*heads.get(family, ()), *found)]
    return "".join(f"{line}\n" for line in lines)


def _labelled(sample: str, process: str) -> str:
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{process="{process}",{rest}'
    name, _, value = sample.partition(" ")
    return f'{name}{{process="{process}"}} {value}'
