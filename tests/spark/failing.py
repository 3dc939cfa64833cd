"""A task that waits before it begins, or fails once after it staged everything, where a test left a file that asks for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from penstock.spark.batches import run_partition
from penstock.spark.job import Job
from penstock.spark.plan import PlannedRange
from penstock.spark.range_manifest import RangeManifest


def failing_partition(job: str, ranges: Iterable[PlannedRange]) -> Iterator[RangeManifest]:
    state_dir = Path(Job.from_json(job).state_dir)
    taken = list(ranges)
    if (held := state_dir / "hold").exists():
        for each in taken:
            (state_dir / f"seen-{each.start}").touch()
        while held.exists() and held.read_text() == str(taken[0].start):
            time.sleep(0.02)
    manifests = list(run_partition(job, taken))
    for how in ("raise", "kill", "raise-always"):
        wish = state_dir / f"fail-{how}"
        if wish.exists():
            if how != "raise-always":
                wish.rename(wish.with_suffix(".done"))
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("a test wanted this task to fail")
    yield from manifests


def size_of(job: str, items: Iterable[None]) -> Iterator[int]:
    """A task that needs a large job and does nothing with it."""
    return iter([len(job) for _ in items])
