"""The state of a record log: rewritten once the log has grown far beyond it, and not before."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.log import RecordLog
from penstock.state import DELETE, BucketState
from tests.state.stores import SOURCE
from tests.support.waiting import LIMIT_SECONDS


def test_state_over_a_record_log_is_compacted(tmp_path: Path) -> None:
    records = RecordLog.open(tmp_path, "progress")
    state = BucketState.open(records)
    store = state.store(SOURCE)
    for n in range(15_000):
        change = state.begin()
        store.put(change, f"k{n % 7}", n)
        pending = state.commit(change)
    pending.result(LIMIT_SECONDS)
    records.close()
    (generation,) = tmp_path.glob("*.rlog")
    assert generation.stat().st_size < 1_500_000 < 15_000 * 120
    again = RecordLog.open(tmp_path, "progress")
    assert dict(BucketState.open(again).store(SOURCE).items()) == {f"k{n % 7}": n for n in range(14_993, 15_000)}
    again.close()


def test_a_record_log_is_not_snapshot_at_every_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is above the least size, but not far beyond the live state: a commit costs what it changes, not the
    whole."""
    records = RecordLog.open(tmp_path, "progress")
    state = BucketState.open(records)
    raw = state.raw_store("r", "o")
    for n in range(0, 2000, 100):
        pending = raw.write({b"%d" % key: bytes(1000) for key in range(n, n + 100)})
    pending.result(LIMIT_SECONDS)
    assert records.bytes > 1 << 20
    snapshots = []
    create = type(state.engine).create_snapshot
    monkeypatch.setattr(type(state.engine), "create_snapshot", lambda self: (snapshots.append(1), create(self))[1])
    for n in range(300):
        pending = raw.write({b"%d" % n: bytes(900)})
    pending.result(LIMIT_SECONDS)
    assert not snapshots
    for _ in range(30):  # deletes shrink the live state, so the log is rewritten
        pending = raw.write({b"%d" % key: DELETE for key in range(2000)})
        pending.result(LIMIT_SECONDS)
        raw.write({b"%d" % key: bytes(1000) for key in range(100)}).result(LIMIT_SECONDS)
    assert snapshots
    assert len(snapshots) < 10
    records.close()
    again = RecordLog.open(tmp_path, "progress")
    assert len(list(BucketState.open(again).raw_store("r", "o").iterate())) == 100
    again.close()
