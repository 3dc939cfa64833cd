"""A whole flow under load for a long time: its processes keep their size, and what it delivered is equal to the source.

    python -m tests.e2e.soak --minutes 30

Prints the resident memory of every process each minute, and its growth from the first quarter of the run (the start
is not counted: kernels, Spark's classes and the caches fill up) to the last. Exits with 1 where a process grew by more
than `GROWTH_MAX` of what it had or by `GROWTH_BYTES_MIN`, whichever is more, or where `penstock verify` finds a
difference.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.flow import PARTS, Flow
from tests.e2e.load import Load, create_tables, source_of
from tools.components.mariadb import MariaDbServer

DATABASE = "soak"
TABLES = 20
GROWTH_MAX = 0.15
GROWTH_BYTES_MIN = 32 << 20
SAMPLE_SECONDS = 10
_VERIFY_SECONDS_MAX = 7200.0  # millions of rows, on a machine that may have other work

Samples = dict[str, list[int]]


def grown(samples: Samples) -> dict[str, tuple[int, int, bool]]:
    """For each process: the median of its first quarter after the start, that of its last, and whether it grew."""
    found = {}
    for name, sizes in samples.items():
        quarter = max(len(sizes) // 4, 1)
        early, late = statistics.median(sizes[quarter : 2 * quarter] or sizes), statistics.median(sizes[-quarter:])
        found[name] = int(early), int(late), late - early > max(GROWTH_MAX * early, GROWTH_BYTES_MIN)
    return found


def watch(flow: Flow, seconds: float) -> Samples:
    """Samples the resident memory of each process until the time is over."""
    samples: Samples = {part: [] for part in PARTS}
    started = said = time.monotonic()
    while (now := time.monotonic()) - started < seconds:
        for part, sizes in samples.items():
            if size := flow.resident_bytes(part):
                sizes.append(size)
        if now - said >= 60:
            said = now
            sizes_now = " ".join(f"{part} {sizes[-1] >> 20}" for part, sizes in samples.items() if sizes)
            rows, lag = flow.last.get("rows", 0), flow.last.get("lag_seconds") or 0.0
            print(f"{(now - started) / 60:5.1f} min · {rows:,} rows · lag {lag:.1f} s · MiB: {sizes_now}", flush=True)
        flow.wait_for("the run to go on", lambda _: True)  # raises where it ended
        time.sleep(SAMPLE_SECONDS)
    return {part: sizes for part, sizes in samples.items() if sizes}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    minutes = parser.parse_args().minutes
    with (
        tempfile.TemporaryDirectory(prefix="penstock-soak-") as directory,
        MariaDbServer(Path(directory) / "server") as server,
    ):
        create_tables(server, DATABASE, TABLES)
        flow = Flow(
            Path(directory) / "flow",
            source_of(server, DATABASE),
            {"lake": {"format": "parquet", "flush": {"size": "4MiB", "every": "2s"}}},
            {"ledger": "4MiB", "keep": {"size": "16MiB"}},
        )
        try:
            flow.start(once=False)
            flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)
            with Load(server, DATABASE, TABLES, pause_seconds=0.01).running():
                samples = watch(flow, minutes * 60)
            flow.interrupt()
            rows = flow.finish(consumed=False)["rows"]  # the sink is read once, at the end
            flow.start(once=True)
            rows += flow.finish()["rows"]
            code, report = flow.verify(seconds=_VERIFY_SECONDS_MAX)
        finally:
            flow.kill()
    growth = grown(samples)
    for part, (early, late, bad) in growth.items():
        print(f"{'✗' if bad else '✓'} {part:9} {early / (1 << 20):8.1f} → {late / (1 << 20):8.1f} MiB")
    print(f"{'✗' if code else '✓'} verify: exit {code}, {rows:,} rows")
    if code:
        print(report)
    return int(bool(code) or any(bad for *_, bad in growth.values()))


if __name__ == "__main__":
    sys.exit(main())
