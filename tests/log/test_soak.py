"""A long run keeps its size: commits, acks, refused appends, reads, awaited answers, handles and scrapes leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import Cursor, Log, LogReader, LogSettings, Pending
from penstock.log.append import groups, queue
from penstock.metadata import MemoryMetadata
from penstock.observe.metrics import METRICS
from penstock.state import BucketState, StateDescriptor, codecs
from tests.support import budget

SETTINGS = LogSettings(
    ledger_entries_max=500, preallocate_bytes=0, retention_seconds=0.0, maintenance_interval_seconds=0
)
COUNTS: StateDescriptor[str, int] = StateDescriptor("counts", "test", codecs.text, codecs.u64)
BATCH = 50  # operations of a round
_WARM_ROUNDS = 30  # kernels are compiled, caches and pools fill
_LOOKS = 4
_TRACED_WARM_ROUNDS = 10  # what is replaced all the time is known to the tracer, too


def allowed_bytes(operations: int) -> int:
    """Tables that double now and then, and one byte an operation: a leak of the smallest object is far more."""
    return 250_000 + operations


class Load:
    """Two logs: one with state and readers, one that was terminated and refuses every append."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "log"
        self.log = Log.open(self.directory, SETTINGS)
        self.state = BucketState.open(self.log)
        self.store = self.state.get_or_create_store(COUNTS)
        self.cursor = self.log.open_cursor("c")
        self.refusing = Log.open(Path("/s/log"), SETTINGS, MemoryFiles(), ManualClock(), MemoryMetadata())
        self.refusing.terminate()
        self.closed = Log.open(self.directory)
        self.closed.close()
        self.operations = 0

    def close(self) -> None:
        self.refusing.close()
        self.log.close()

    def round(self) -> None:
        answers: list[Pending[Any]] = []
        for number in range(BATCH):
            change = self.state.begin()
            self.store.put(change, f"k{number % 10}", self.operations + number)
            answers.append(self.state.commit(change, bytes(500)))
        asyncio.run(self._wait(answers))
        for refuse in (self.refusing, self.closed):
            for _ in range(BATCH // 2):
                with contextlib.suppress(PenstockError):
                    refuse.append(bytes(2000))
        with contextlib.suppress(BadInput):
            self.log.append("text")  # type: ignore[arg-type]
        for entry in self.cursor.read(BATCH):
            answers.append(self.cursor.ack(entry.position))
        answers[-1].as_future().result(30)
        with Log.open(self.directory) as again, LogReader.open(self.directory) as reader:
            again.trim()
            with contextlib.closing(Cursor.in_memory(reader)) as passing:
                passing.has_more()
        METRICS.render()
        self.operations += BATCH
        if self.operations % (20 * BATCH) == 0:
            self.empty()

    def size(self) -> int:
        """What is in memory, once nothing waits to be forgotten. The least of some looks: a thread of the log's own may hold
        a buffer at one of them, and on a busy machine for long."""
        looks = []
        for _ in range(_LOOKS):
            self.empty()
            gc.collect()
            looks.append(tracemalloc.get_traced_memory()[0])
        return min(looks)

    def empty(self) -> None:
        """Nothing is left in the log, nor in the caches of what it holds."""
        while entries := self.cursor.read(1000):
            self.cursor.ack_each([entry.position for entry in entries]).result(30)
        self.log.roll()
        self.state.checkpoint()
        self.log.trim()

    @staticmethod
    async def _wait(answers: list[Pending[Any]]) -> None:
        for answer in answers:
            await answer


def kept_bytes(directory: Path, operations: int) -> int:
    """By how much a run of so many operations grows: twice the smaller growth of its halves, because a leak grows in both,
    and what is made once, such as a compiled kernel, in one of them."""
    load = Load(directory)
    try:
        for _ in range(_WARM_ROUNDS):
            load.round()
        tracemalloc.start()
        for _ in range(_TRACED_WARM_ROUNDS):
            load.round()
        sizes = [load.size()]
        for _ in range(2):
            for _ in range(operations // 2 // BATCH):
                load.round()
            sizes.append(load.size())
        return 2 * min(sizes[1] - sizes[0], sizes[2] - sizes[1])
    finally:
        tracemalloc.stop()
        load.close()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_long_run_keeps_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = kept_bytes(tmp_path, budget.SOAK_OPERATIONS)
    with capsys.disabled():
        print(f"\nlog soak: {budget.SOAK_OPERATIONS} commits, acks and refused appends: {kept} bytes kept")
    assert kept < allowed_bytes(budget.SOAK_OPERATIONS)


def a_kept_error_is_raised_itself(patch: Callable[..., None]) -> None:
    """Each time it is raised, it takes the frames of its callers with it, and they hold the payloads."""
    patch(queue, "fresh", lambda error: error)


def an_answer_keeps_the_append_before_it(patch: Callable[..., None]) -> None:
    kept: list[Any] = []  # as a chain of answers that is never cut keeps all of them
    answer = groups.answer

    def keeping(group: Any, *rest: Any) -> None:
        kept.append([item.data for item in group])
        answer(group, *rest)

    patch("penstock.log.append.appender.answer", keeping)


@pytest.mark.parametrize("planted", [a_kept_error_is_raised_itself, an_answer_keeps_the_append_before_it])
def test_a_planted_leak_is_caught(planted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch.setattr)
    assert kept_bytes(tmp_path, 2000) > 2 * allowed_bytes(2000)
