"""Log lines hide secrets in every form; metrics have few labels."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import Unavailable
from penstock.observe import logging as observe_logging
from penstock.observe.metrics import FLUSH_REASONS, LogTotals, Metrics, SpoolTotals, StateTotals

CANARY = 'pa"ss/wörd %40\n7'


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    monkeypatch.setattr(observe_logging, "_hidden", ())
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    stream = io.StringIO()
    observe_logging.configure("test", stream=stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


def parsed(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_object_with_its_facts(lines: io.StringIO) -> None:
    logging.getLogger("penstock.log").info("rolled to ledger %d", 7, extra={"ledger": 7, "path": ("a", "b")})
    (line,) = parsed(lines)
    assert line["message"] == "rolled to ledger 7"
    assert (line["level"], line["process"], line["logger"]) == ("info", "test", "penstock.log")
    assert (line["ledger"], line["path"]) == (7, ["a", "b"])
    assert line["time"].endswith("Z") and len(line["time"]) == 24


def test_a_secret_never_appears_in_any_form(lines: io.StringIO) -> None:
    observe_logging.hide(CANARY)
    logger = logging.getLogger("x")
    logger.info("connect with %s", CANARY)
    logger.info("settings %r", {"password": CANARY})
    logger.info("body " + json.dumps({"password": CANARY}))
    logger.info("nested", extra={"source": {"password": CANARY, "list": [CANARY, {CANARY: 1}]}})
    logger.info("url mysql://u:pa%22ss%2Fw%C3%B6rd%20%2540%0A7@host/")
    try:
        raise Unavailable(f"cannot log in with {CANARY}")
    except Unavailable:
        logger.exception("failed")
    text = lines.getvalue()
    seen = parsed(lines)
    assert len(seen) == 6
    assert all(observe_logging.REDACTED in json.dumps(line) for line in seen)
    for part in ('pa"ss', 'pa\\"ss', "wörd", "w%C3%B6rd", "w\\u00f6rd"):
        assert part not in text
    assert seen[-1]["error"] == {"kind": "Unavailable", "message": "cannot log in with ***", "transient": True}


def test_without_hide_the_canary_is_seen(lines: io.StringIO) -> None:
    """The test above can fail."""
    logging.getLogger("x").info("connect with %s", CANARY)
    assert CANARY in parsed(lines)[0]["message"]


def test_a_longer_secret_goes_as_a_whole(lines: io.StringIO) -> None:
    observe_logging.hide("abc")
    observe_logging.hide("abcdef")
    observe_logging.hide("")
    logging.getLogger("x").info("1 abcdef 2 abc 3")
    assert parsed(lines)[0]["message"] == "1 *** 2 *** 3"


def test_metrics_have_only_labels_with_few_values() -> None:
    metrics = Metrics()
    metrics.rows.labels(changefeed="lake").inc(3)
    for reason in FLUSH_REASONS:
        metrics.flush_total.labels(changefeed="lake", reason=reason).inc()
    text = metrics.render().decode()
    assert 'penstock_rows_total{changefeed="lake"} 3.0' in text
    assert 'penstock_flush_total{changefeed="lake",reason="interval"} 1.0' in text
    allowed = {"changefeed", "reason", "way"}
    for name, metric in vars(metrics).items():
        if name != "registry":
            assert set(getattr(metric, "_labelnames", ())) <= allowed, name


def test_no_gauge_is_named_like_a_part_of_another_kind() -> None:
    """`_sum`, `_count`, `_bucket` and `_total` are Prometheus' own endings, of histograms and counters."""
    metrics = Metrics()
    metrics.watch_logs(LogTotals)
    metrics.watch_states(StateTotals)
    gauges = [family.name for family in metrics.registry.collect() if family.type == "gauge"]
    assert "penstock_cursor_backlog_bytes" in gauges
    assert not [name for name in gauges if name.endswith(("_sum", "_count", "_bucket", "_total"))]


def test_the_figures_of_each_spool_have_its_changefeed_as_their_only_label() -> None:
    metrics = Metrics()
    metrics.watch_spool("raw", lambda: SpoolTotals(memory_bytes=7, wake_suppressed=3))
    metrics.watch_spool("lake", SpoolTotals)
    text = metrics.render().decode()
    assert 'penstock_spool_memory_bytes{changefeed="raw"} 7.0' in text
    assert 'penstock_wake_suppressed_total{changefeed="raw"} 3.0' in text
    assert 'penstock_spool_disk_bytes{changefeed="lake"} 0.0' in text
    metrics.forget_spool("raw")
    assert 'changefeed="raw"' not in metrics.render().decode()
