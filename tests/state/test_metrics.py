"""The metrics of states count what happens, and do not go back when a state is closed."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

from penstock.log import Log
from penstock.observe.metrics import METRICS
from penstock.state import BucketState
from penstock.state.metrics import state_totals
from tests.support.waiting import LIMIT_SECONDS


def sample(name: str, **labels: str) -> float:
    return METRICS.registry.get_sample_value(f"penstock_state_{name}", labels) or 0.0


def test_metrics_count_what_happens(tmp_path: Path) -> None:
    before = {name: sample(name) for name in ("reads_total", "writes_total", "wal_bytes_total", "open")}
    checkpoints, recoveries = (
        sample("checkpoint_duration_seconds_count"),
        sample("recovery_duration_seconds_count", way="checkpoint"),
    )
    with Log.open(tmp_path / "log") as log:
        state = BucketState.open(log)
        raw = state.raw_store("s", "o")
        raw.write({b"%d" % n: b"value" for n in range(10)}).result(LIMIT_SECONDS)
        for n in range(2000):
            raw.get(b"%d" % n)
        state.checkpoint()
        assert sample("open") == before["open"] + 1
        assert sample("bytes") > 50
        kept = raw.iterate()
        next(kept)
        assert sample("iterations") == 1
        assert sample("iteration_age_seconds") > 0
        kept.close()
        raw.iterate()  # never closed
        gc.collect()
        assert sample("iterations") == 0
    assert sample("open") == before["open"]
    assert sample("reads_total") - before["reads_total"] == 2000  # counters do not go back with a close
    assert sample("writes_total") - before["writes_total"] == 10
    assert sample("wal_bytes_total") - before["wal_bytes_total"] > 10 * 32
    assert sample("read_duration_seconds_count") >= 1
    assert sample("write_duration_seconds_count") >= 1
    assert sample("checkpoint_duration_seconds_count") == checkpoints + 1
    assert sample("checkpoint_bytes_total") > 0
    with Log.open(tmp_path / "log") as log:
        BucketState.open(log)
    assert sample("recovery_duration_seconds_count", way="checkpoint") == recoveries + 1
    assert sample("recovery_bytes_left") == 0


def test_a_scrape_beside_iterations_that_begin_and_end(tmp_path: Path) -> None:
    """Threads open and close iterations while the totals are summed: the sum is of some moment, and never an error."""
    stop = threading.Event()
    switch = sys.getswitchinterval()
    with Log.open(tmp_path / "log") as log:
        raw = BucketState.open(log).raw_store("s", "o")
        raw.write({b"key": b"value"}).result(LIMIT_SECONDS)

        def iterate() -> None:
            while not stop.is_set():
                held = [raw.iterate() for _ in range(20)]
                for one in held[:10]:
                    one.close()
                del held  # the others are left to the garbage collector

        threads = [threading.Thread(target=iterate) for _ in range(2)]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            assert all(0 <= state_totals().iterations <= 40 for _ in range(3_000))
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            sys.setswitchinterval(switch)
    assert state_totals().iterations == 0
