"""The log's metrics: what they count is what happened, an append pays nothing of its own, and labels stay few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import Corruption, StorageFailed
from penstock.log import Cursor, Log, LogReader, LogSettings, Position
from penstock.log.metrics import log_totals
from penstock.observe.metrics import METRICS

SETTINGS = LogSettings(ledger_entries_max=10, maintenance_interval_seconds=0)


def value(name: str) -> float:
    return METRICS.registry.get_sample_value(f"penstock_{name}") or 0.0


def grown(names: tuple[str, ...], work: Callable[[], object]) -> dict[str, float]:
    before = {name: value(name) for name in names}
    work()
    return {name: value(name) - before[name] for name in names}


def test_appends_rolls_and_reads_are_counted(tmp_path: Path) -> None:
    names = (
        "log_append_entries_total", "log_append_bytes_total", "log_append_body_bytes_total",
        "log_group_entries_count", "log_group_entries_sum", "log_append_duration_seconds_sum",
        "log_sync_duration_seconds_count", "log_append_duration_seconds_count",
        "log_ledger_switch_duration_seconds_count",
    )  # fmt: skip
    with Log.open(tmp_path / "log", SETTINGS) as log:

        def work() -> None:
            for _ in range(3):
                log.append_many([b"x" * 100] * 10).result()

        seen = grown(names, work)
        assert seen["log_append_entries_total"] == seen["log_group_entries_sum"] == 30
        assert seen["log_append_bytes_total"] == 30 * (64 + 100 + 4)
        assert seen["log_append_body_bytes_total"] == 30 * 100
        # Observed once a group; the latency with a weight, so that it is that of each entry.
        assert seen["log_group_entries_count"] == seen["log_sync_duration_seconds_count"] == 3
        assert seen["log_append_duration_seconds_count"] == 30
        assert seen["log_ledger_switch_duration_seconds_count"] == log.statistics().rolls == 2
        assert 0 < seen["log_append_duration_seconds_sum"] < 30 * 60
    reader = LogReader.open(tmp_path / "log")
    seen = grown(
        (
            "log_read_duration_seconds_count",
            "log_read_bytes_total",
            "log_cache_misses_total",
            "log_cache_hits_total",
            "log_read_entry_duration_seconds_count",
        ),
        lambda: [list(reader.read(reader.first, reader.end())) for _ in range(2)],
    )
    assert seen["log_read_duration_seconds_count"] == seen["log_cache_misses_total"] == 3
    assert seen["log_cache_hits_total"] == 3
    assert seen["log_read_entry_duration_seconds_count"] == 60, "each entry of both passes, also those from the cache"
    assert seen["log_read_bytes_total"] == 30 * (64 + 100 + 4)
    reader.close()


def test_totals_follow_logs_and_cursors(tmp_path: Path) -> None:
    before = log_totals()
    with Log.open(tmp_path / "log", SETTINGS) as log:
        log.append_many([b"x"] * 10).result()
        log.append_many([b"x"] * 5).result()
        cursor = log.open_cursor("lake")
        acked = grown(
            ("cursor_persist_duration_seconds_count",),
            lambda: cursor.ack_each([Position(1, 1), Position(1, 3)]).result(),
        )
        assert acked == {"cursor_persist_duration_seconds_count": 1}
        now = log_totals()
        assert (now.logs - before.logs, now.cursors - before.cursors) == (1, 1)
        assert (now.ledgers - before.ledgers, now.entries - before.entries) == (2, 15)
        assert now.stored_bytes - before.stored_bytes == log.statistics().bytes
        assert now.backlog_entries - before.backlog_entries == 13
        whole, open_ledger = (view.frames_end for view in log.reader().ledgers())
        assert now.backlog_bytes - before.backlog_bytes == whole * 8 // 10 + open_ledger
        assert value("cursor_backlog_bytes_max") >= whole * 8 // 10 + open_ledger
        assert now.cursor_holes - before.cursor_holes == 2
        assert now.cursor_bytes > before.cursor_bytes
        assert value("cursor_backlog_entries_max") >= 13
    after = log_totals()
    assert (after.logs, after.cursors, after.entries) == (before.logs, before.cursors, before.entries)


def test_offloads_and_reads_of_them_are_counted(tmp_path: Path) -> None:
    url = (tmp_path / "objects").as_uri()
    before = log_totals()
    settings = LogSettings(
        ledger_entries_max=10, maintenance_interval_seconds=0, offload_url=url, offload_deletion_lag_seconds=0
    )
    names = (
        "log_offload_ledgers_total", "log_offload_bytes_total", "log_offload_duration_seconds_count",
        "log_offload_put_duration_seconds_count", "log_offload_errors_total", "log_offload_read_bytes_total",
        "log_offload_read_duration_seconds_count", "log_offload_index_read_duration_seconds_count",
        "log_offload_read_errors_total", "log_offload_deletes_total",
    )  # fmt: skip
    with Log.open(tmp_path / "log", settings) as log:
        for _ in range(3):
            log.append_many([b"x" * 100] * 10).result()
        frames = 64 + 10 * (64 + 100 + 4)
        seen = grown(names, log.offload)
        assert seen["log_offload_ledgers_total"] == seen["log_offload_duration_seconds_count"] == 2
        assert seen["log_offload_put_duration_seconds_count"] == 4
        assert 2 * frames < seen["log_offload_bytes_total"] < 3 * frames
        assert seen["log_offload_read_bytes_total"] == 2 * frames, "each was read back before its local file went"
        totals = log_totals()
        assert totals.offloaded_ledgers - before.offloaded_ledgers == 2
        assert totals.offloaded_bytes - before.offloaded_bytes == 2 * frames
        assert value("log_offloaded_ledgers") == totals.offloaded_ledgers
        log.reader().cache.drop(log.reader().cache_key)
        seen = grown(names, lambda: list(log.read(Position(1, 0), Position(2, 9))))
        assert seen["log_offload_read_duration_seconds_count"] == seen["log_offload_index_read_duration_seconds_count"]
        assert seen["log_offload_read_bytes_total"] == 2 * frames
        assert seen["log_offload_errors_total"] == seen["log_offload_read_errors_total"] == 0
        for part in (tmp_path / "objects").rglob("*.part"):
            part.write_bytes(b"")
        log.reader().cache.drop(log.reader().cache_key)

        def fail() -> None:
            with pytest.raises(Corruption):
                list(log.read(Position(1, 0), Position(2, 9)))
            log.append_many([b"x"] * 3).result()
            log.roll()
            (tmp_path / "objects").rename(tmp_path / "away")
            (tmp_path / "objects").write_text("in the way")
            with pytest.raises(StorageFailed):
                log.offload()
            (tmp_path / "objects").unlink()
            log.clear()

        seen = grown(names, fail)
        assert seen["log_offload_read_errors_total"] == 3
        assert seen["log_offload_errors_total"] == 1
        assert seen["log_offload_deletes_total"] >= 3
        assert log_totals().discarded_ledgers == before.discarded_ledgers


def test_a_cursor_of_another_process_counts_there(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        log.append(b"x").result()
        reader = LogReader.open(tmp_path / "log")
        before = log_totals().cursors
        cursor = Cursor.open(reader, tmp_path / "cursors", "apart")
        assert log_totals().cursors == before + 1
        cursor.close()
        assert log_totals().cursors == before
        reader.close()


def test_no_metric_of_the_log_has_labels() -> None:
    lines = [
        line
        for line in METRICS.render().decode().splitlines()
        if line.startswith(("penstock_log_", "penstock_cursor_"))
    ]
    assert len(lines) > 30
    labelled = [line for line in lines if "{" in line and "{le=" not in line and "changefeed=" not in line]
    assert not labelled
