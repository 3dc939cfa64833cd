"""The cache of runs: reads at the tail, shared reads, what is kept and what goes, the limiter."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import shutil
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest

from penstock.errors import Closed
from penstock.files import RealFiles
from penstock.log import Log, LogReader, Position, wait_all
from penstock.log.read.cache import _RUN_BYTES, LogKey, ReadCache, ReadLimiter
from penstock.log.read.run import FrameRun
from tests.support.files import CountingFiles
from tests.support.waiting import LIMIT_SECONDS


def test_the_tail_is_read_from_memory_in_the_owners_process(tmp_path: Path) -> None:
    files = CountingFiles()
    log = Log.open(tmp_path / "log", files=files)
    first = log.append(b"0").result()
    list(log.read(first, first))  # somebody reads here
    files.frame_reads = 0
    for n in range(1, 50):
        position = log.append(b"%d" % n).result()
        assert [bytes(e.data) for e in log.read(position, position)] == [b"%d" % n]
    big = log.append(bytes(200_000)).result()
    assert [len(e.data) for e in log.read(big, big)] == [200_000]
    assert files.frame_reads == 0
    statistics = log.statistics()
    assert statistics.cache_hits >= 50
    log.close()


def test_concurrent_reads_of_the_same_range_share_one_disk_read(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    wait_all([log.append(b"%d" % n) for n in range(100)])
    log.roll()
    files = CountingFiles()
    reader = LogReader.open(tmp_path / "log", files)
    assert len(list(reader.read(Position(1, 99), Position(1, 99)))) == 1  # the footer is known
    files.frame_reads, files.frame_read_seconds = 0, 0.2
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(list(reader.read(Position(1, 0), Position(1, 98))))))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [99] * 5
    assert files.frame_reads == 1
    reader.close()
    log.close()


ROOM = 10 * (100 + 32 + _RUN_BYTES)  # for ten of the runs below


def run(ledger: int, first: int, size: int = 100) -> FrameRun:
    return FrameRun(ledger, first, bytes(size), np.array([[0, size - 68, 0, 0]], np.int64))


def test_the_cache_is_bounded_in_bytes_and_first_in_is_first_out() -> None:
    cache, log = ReadCache(bytes_max=ROOM), uuid4()
    for n in range(50):
        cache.put(log, run(1, n))
        assert cache.bytes <= ROOM
    assert cache.get(log, 1, 39) is None
    assert cache.get(log, 1, 40) is not None
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_cache_keeps_what_a_cursor_is_still_to_read() -> None:
    cache, log = ReadCache(bytes_max=ROOM), uuid4()

    class Reader:
        pass

    cursor = Reader()
    cache.expect(cursor, log, Position(1, 0))
    cache.put(log, run(1, 0))
    for n in range(12):
        cache.put(uuid4(), run(9, n))
    assert cache.get(log, 1, 0) is not None
    cache.forget(cursor)
    for n in range(12, 40):
        cache.put(uuid4(), run(9, n))
    assert cache.get(log, 1, 0) is None
    assert cache.bytes <= ROOM


def test_a_cursor_that_stands_still_does_not_keep_the_cache_for_ever() -> None:
    cache, log = ReadCache(bytes_max=ROOM), uuid4()

    class Reader:
        pass

    cursor = Reader()
    cache.expect(cursor, log, Position(1, 0))
    for n in range(200):
        cache.put(log, run(1, n))
    assert cache.bytes <= ROOM
    assert cache.get(log, 1, 199) is not None


def test_a_consumer_that_keeps_its_entries_does_not_block_the_limiter(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    for _ in range(20):
        log.append(bytes(300_000)).result()
    reader = LogReader.open(tmp_path / "log", RealFiles())
    reader.cache.limiter.bytes_max = 400_000
    kept = [list(reader.read(Position(1, n), Position(1, n + 9))) for n in range(10)]
    assert sum(len(entries) for entries in kept) == 100
    assert reader.cache.limiter.bytes == 0
    reader.close()
    log.close()


def test_the_limiter_bounds_what_is_read_at_one_time() -> None:
    limiter = ReadLimiter(100)
    highest = 0
    lock = threading.Lock()

    def work(size: int) -> None:
        nonlocal highest
        with limiter.take(size):
            with lock:
                highest = max(highest, limiter.bytes)
            time.sleep(0.005)

    threads = [threading.Thread(target=work, args=(size,)) for size in [40] * 10 + [250]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert highest == 250 or highest <= 100
    assert limiter.bytes == 0


def test_the_cache_takes_no_more_memory_than_it_may() -> None:
    """Runs of one small entry are mostly objects: they count."""
    for size in (168, 5000):
        cache, log = ReadCache(bytes_max=2 << 20), uuid4()
        tracemalloc.start()
        for n in range(12_000 if size == 168 else 2_000):
            cache.put(log, FrameRun(1, n, bytes(bytearray(size)), np.array([[0, size - 68, 0, 0]], np.int64)))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert 0.7 * cache.bytes_max < taken < 1.3 * cache.bytes_max, size
        assert cache.bytes <= cache.bytes_max


def test_a_put_at_the_limit_does_not_depend_on_how_many_runs_there_are() -> None:
    def seconds(bytes_max: int) -> float:
        cache, log, count = ReadCache(bytes_max), uuid4(), bytes_max // (100 + 32 + _RUN_BYTES)
        for n in range(count):
            cache.put(log, run(1, n))
        found = []
        for at in range(5):
            runs = [run(1, count + 400 * at + n) for n in range(400)]
            started = time.process_time()
            for one in runs:
                cache.put(log, one)
            found.append(time.process_time() - started)
        assert cache.get(log, 1, count + 1999) is not None
        assert cache.get(log, 1, 0) is None
        return min(found)

    assert seconds(24 << 20) < 3 * seconds(1 << 20)


def test_a_full_cache_looks_at_its_consumers_once_for_many_puts() -> None:
    """What a put at the limit costs must not be what it costs to look at every cursor of the process."""
    looks: list[int] = []

    class Watched(ReadCache):
        def _needed_from(self, log: LogKey, ledger_id: int) -> float:
            looks.append(ledger_id)
            return super()._needed_from(log, ledger_id)

    cache, log, consumer = Watched(bytes_max=1 << 20), uuid4(), threading.Event()
    cache.expect(consumer, log, Position(1, 1_000_000))
    for n in range(5000):
        cache.put(log, FrameRun(1, n, bytes(500), np.zeros((1, 4), np.int64)))
    held = cache.bytes // (500 + 32 + _RUN_BYTES)
    assert len(looks) <= 64 * (5000 - held) / held + 2
    assert 0.98 * cache.bytes_max < cache.bytes <= cache.bytes_max


def test_the_owner_keeps_entries_only_for_those_who_read_on(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", files=RealFiles())
    positions = [log.append(b"%d" % n).result(5) for n in range(100)]
    reader = log.reader()
    cache, key = reader.cache, reader.cache_key
    slow, fast = log.open_cursor("slow"), log.open_cursor("fast")
    assert not cache.wants(key)
    slow.read(5)
    fast.read(50)
    assert sorted(position for _, position in cache._expected.values()) == [positions[5], positions[50]]
    assert cache.wants(key)
    assert cache.shared(key)
    assert slow.backlog_bytes() > 0  # a look in passing is no reading on
    slow.close()
    assert cache.wants(key)
    assert not cache.shared(key)
    fast.close()
    assert not cache.wants(key)
    before = cache.bytes
    for _ in range(20):
        log.append(bytes(1000)).result(5)
    assert cache.bytes == before
    log.close()


def test_a_copy_of_a_log_is_another_log(tmp_path: Path) -> None:
    with Log.open(tmp_path / "a" / "log") as log:
        log.append(b"common").result(5)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    one, two = Log.open(tmp_path / "a" / "log"), Log.open(tmp_path / "b" / "log")
    for log in (one, two):
        assert [bytes(entry.data) for entry in log.read(Position(1, 0), Position(1, 0))] == [b"common"]
    first, second = one.append(b"the original").result(5), two.append(b"the copy").result(5)
    assert first == second
    assert [bytes(entry.data) for entry in one.read(first, first)] == [b"the original"]
    assert [bytes(entry.data) for entry in two.read(second, second)] == [b"the copy"]
    one.close()
    two.close()


def run_at(first: int, size: int = 100) -> FrameRun:
    return FrameRun(0, first, bytes(size), np.zeros((1, 4), np.int64))


def test_a_read_that_is_interrupted_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ReadCache()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(cache, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cache.load("log", 0, 0, lambda: run_at(0))
    found: list[FrameRun] = []
    other = threading.Thread(target=lambda: found.append(cache.load("log", 0, 0, lambda: run_at(0))), daemon=True)
    other.start()
    other.join(10)
    assert found


def test_a_fork_in_the_middle_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a child gets the cache: another thread, which it does not have, was taking runs out."""
    cache = ReadCache(10_000)
    inside, go = threading.Event(), threading.Event()

    def held_up(*_: object) -> float:
        inside.set()
        go.wait(10)
        return math.inf

    monkeypatch.setattr(cache, "_needed_from", held_up)
    filling = threading.Thread(target=lambda: [cache.put("log", run_at(number, 1500)) for number in range(10)])
    filling.start()
    assert inside.wait(10)
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            cache.forked()
            cache.drop("log")
            cache.put("log", run_at(0))
            os._exit(0 if cache.get("log", 0, 0) is not None else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    filling.join()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Closed("a reader is closed")])
def test_what_fails_a_read_of_one_fails_no_other_that_shares_it(error: BaseException) -> None:
    cache = ReadCache()
    inside, go = threading.Event(), threading.Event()

    def failing() -> FrameRun:
        inside.set()
        assert go.wait(LIMIT_SECONDS)
        raise error

    def read(by: Callable[[], FrameRun]) -> FrameRun | BaseException:
        try:
            return cache.load("log", 0, 0, by)
        except BaseException as failure:
            return failure

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(read, failing)
        assert inside.wait(LIMIT_SECONDS)
        second = pool.submit(read, lambda: run_at(0))
        go.set()
        assert type(first.result(LIMIT_SECONDS)) is type(error)
        assert isinstance(second.result(LIMIT_SECONDS), FrameRun)
