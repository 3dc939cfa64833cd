"""What the processes of a running `penstock run` use: memory and processor time, by what they are."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
# The first that fits names the process: what stands in its command line.
_KINDS = (
    ("JVM", "/java "),
    ("capture", "penstock.capture"),
    ("delivery", "penstock.delivery"),
    ("workers", "penstock.spark.daemon"),
    ("workers", "pyspark.daemon"),
    ("driver", "penstock.spark"),
    ("run", "penstock.cli"),
)


def tree(pid: int) -> Iterator[tuple[int, str]]:
    """A process and all that descend from it, each with its kind."""
    found = [pid]
    for one in found:
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            threads = [path for path in Path(f"/proc/{one}/task").iterdir() if path.name != str(one)]
            for thread in threads:  # a child belongs to the thread that started it
                children += (thread / "children").read_text().split()
            command = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if not command:
            continue  # it is just ending, and does not say any more what it was
        found += [int(child) for child in children]
        yield one, next((kind for kind, part in _KINDS if part in command), "others")


def cpu_seconds(pid: int) -> dict[str, float]:
    """Processor time so far of each kind. What ended children had used is not in it: they were of kinds of their own."""
    sums: dict[str, float] = {}
    for one, kind in tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        sums[kind] = sums.get(kind, 0.0) + sum(map(int, fields[11:13])) / _TICK
    return sums


def memory_bytes(pid: int) -> dict[str, int]:
    """Memory of each kind now. Pages that several processes share are counted once (PSS): workers are forks."""
    sums: dict[str, int] = {}
    for one, kind in tree(pid):
        try:
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        kib = next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
        sums[kind] = sums.get(kind, 0) + kib * 1024
    return sums


class Watch:
    """Looks at a run's processes until the block ends: the most memory that they had at one time, in all and of each
    kind, and the processor time of each. Without `memory` it looks at time alone: to count pages takes a part of a core."""

    def __init__(self, pid: int, every_seconds: float = 0.25, *, memory: bool = True) -> None:
        self._pid, self._every, self._memory = pid, every_seconds, memory
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.peak_bytes = 0
        self.peak_of_kind: dict[str, int] = {}
        self.cpu_of_kind: dict[str, float] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            sizes = memory_bytes(self._pid) if self._memory else {}
            self.peak_bytes = max(self.peak_bytes, sum(sizes.values()))
            for kind, size in sizes.items():
                self.peak_of_kind[kind] = max(self.peak_of_kind.get(kind, 0), size)
            for kind, seconds in cpu_seconds(self._pid).items():
                self.cpu_of_kind[kind] = max(self.cpu_of_kind.get(kind, 0.0), seconds)
            if self._ended.wait(self._every):
                return
