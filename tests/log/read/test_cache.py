"""The cache of runs: reads at the tail, shared reads, what is kept and what goes, the limiter."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from uuid import uuid4

import numpy as np

from penstock.files import RealFiles
from penstock.log import Log, LogReader, Position, wait_all
from penstock.log.read.cache import ReadCache, ReadLimiter
from penstock.log.read.run import FrameRun
from tests.support.files import CountingFiles


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


def run(ledger: int, first: int, size: int = 100) -> FrameRun:
    return FrameRun(ledger, first, bytes(size), np.array([[0, size - 68, 0, 0]], np.int64))


def test_the_cache_is_bounded_in_bytes_and_first_in_is_first_out() -> None:
    cache, log = ReadCache(bytes_max=1000), uuid4()
    for n in range(50):
        cache.put(log, run(1, n))
        assert cache.bytes <= 1000
    assert cache.get(log, 1, 39) is None
    assert cache.get(log, 1, 40) is not None
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_cache_keeps_what_a_cursor_is_still_to_read() -> None:
    cache, log = ReadCache(bytes_max=1000), uuid4()

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
    assert cache.bytes <= 1000


def test_a_cursor_that_stands_still_does_not_keep_the_cache_for_ever() -> None:
    cache, log = ReadCache(bytes_max=1000), uuid4()

    class Reader:
        pass

    cursor = Reader()
    cache.expect(cursor, log, Position(1, 0))
    for n in range(200):
        cache.put(log, run(1, n))
    assert cache.bytes <= 1000
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
