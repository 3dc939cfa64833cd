"""One scrape has the metrics of all processes: each family once, each sample told apart by its process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import penstock.delivery.changefeed_delivery
import penstock.state  # noqa: F401
from penstock.errors import Unavailable
from penstock.observe.metrics import METRICS
from penstock.process import Event
from penstock.supervisor.http.exposition import run_metrics
from penstock.supervisor.http.process_metrics import ProcessMetrics, merged
from penstock.supervisor.status import HeadroomStatus
from tests.supervisor.test_http_server import WELL
from tests.support.waiting import LIMIT_SECONDS

LABELS = {"process", "changefeed", "reason", "stage", "le", "way", "quantile", "stat", "state"}


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in found, f"{family.name} is there twice"
        found[family.name] = [(dict(one.labels), one.value) for one in family.samples]
    return found


def down() -> str:
    raise Unavailable("delivery is down")


def test_families_of_several_processes_are_one() -> None:
    text = '# HELP a_total x\n# TYPE a_total counter\na_total{reason="s p{a}ce"} 3\n# TYPE b gauge\nb 1.0\n'
    found = samples(merged({"capture": text, "driver": text}))
    assert found == {
        "a": [({"process": "capture", "reason": "s p{a}ce"}, 3.0), ({"process": "driver", "reason": "s p{a}ce"}, 3.0)],
        "b": [({"process": "capture"}, 1.0), ({"process": "driver"}, 1.0)],
    }


def test_what_each_process_says() -> None:
    metrics = ProcessMetrics(lambda: METRICS.render().decode())
    metrics.on_event("capture", {"event": Event.METRICS, "text": METRICS.render().decode()})
    metrics.on_event("capture", {"event": Event.PROGRESS, "events": 5, "transactions": 2, "bytes": 100})
    counters: dict[str, Any] = {"rows": 7, "batches": 1, "stage_seconds": {"decode": 0.5}}
    metrics.on_event("driver", {"event": Event.PROGRESS, "changefeed": "lake", **counters})
    metrics.on_event("driver", {"event": Event.METRICS, "text": METRICS.render().decode()})
    found = samples(metrics.text())
    assert {one[0]["process"] for one in found["penstock_log_open"]} == {"capture", "driver", "delivery", "run"}
    assert found["penstock_capture_events"] == [({}, 5.0)]
    assert found["penstock_driver_rows"] == [({"changefeed": "lake"}, 7.0)]
    assert found["penstock_driver_stage_seconds"] == [({"changefeed": "lake", "stage": "decode"}, 0.5)]
    assert {label for each in found.values() for one in each for label in one[0]} <= LABELS


def test_a_process_that_is_gone_has_none() -> None:
    metrics = ProcessMetrics(down)
    for process in ("capture", "driver"):
        metrics.on_event(process, {"event": Event.METRICS, "text": "# TYPE mine gauge\nmine 1.0\n"})
    metrics.on_event("driver", {"event": Event.PROGRESS, "changefeed": "lake", "rows": 7})
    metrics.on_end("driver")
    found = samples(metrics.text())
    assert found["mine"] == [({"process": "capture"}, 1.0)]
    assert "penstock_driver_rows" not in found


def test_a_child_says_its_metrics_and_goes_on_where_they_fail() -> None:
    program = (
        "from penstock.process import ChildProcess; from penstock.observe.metrics import METRICS\n"
        "child = ChildProcess('capture'); child.end_with_threads(); child.read_settings()\n"
        "usual, calls = METRICS.render, []\n"
        "def render():\n"
        "    calls.append(1)\n"
        "    if len(calls) == 1: raise RuntimeError('a set changed its size')\n"
        "    child.stop.set(); return usual()\n"
        "METRICS.render = render; child.report_metrics(0.01)\n"
        "import threading; [one.join() for one in threading.enumerate() if one.name == 'metrics']\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b"{}\n")
        child.stdin.flush()
        line = child.stdout.readline()
        assert b'"event": "metrics"' in line and b"penstock_log_append_entries_total" in line
        assert child.wait(LIMIT_SECONDS) == 0


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
    low = HeadroomStatus(file="a", oldest="a", seconds=1.0)
    well = WELL.model_copy(update={"source": WELL.source.model_copy(update={"headroom": low})})
    metrics = ProcessMetrics(down)
    metrics.on_event("capture", {"event": Event.PROGRESS, "events": 5, "transactions": 2, "bytes": 100})
    metrics.on_event("driver", {"event": Event.PROGRESS, "changefeed": "lake", "stage_seconds": {"decode": 0.5}})
    text = run_metrics(well) + metrics.text() + METRICS.render().decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    assert len(names) > 90
    missing = sorted(name for name in names if not name.endswith("_created") and f"| `{name}` |" not in page)
    assert not missing, missing
    gone = [name for name in re.findall(r"^\| `(penstock_\w+)`", page, re.MULTILINE) if name not in names]
    assert not gone, f"documented, and not there: {gone}"
