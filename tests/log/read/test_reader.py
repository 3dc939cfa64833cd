"""`LogReader`: positions across ledgers, search by content and by time, ranges."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed
from penstock.files import RealFiles
from penstock.files.memory import MemoryFiles
from penstock.log import Entry, Log, LogReader, LogSettings, Position, wait_all
from penstock.log.ledgers.info import LedgerInfo, ledger_path
from penstock.log.ledgers.store import LedgerFile
from penstock.log.read.cache import cache_for
from penstock.metadata import MemoryMetadata
from tests.support.files import CountingFiles

DIRECTORY = Path("/s/log")
SMALL = LogSettings(ledger_entries_max=3, preallocate_bytes=1024, maintenance_interval_seconds=0)


def small_log(entries: int, clock: ManualClock | None = None) -> Log:
    log = Log.open(DIRECTORY, SMALL, MemoryFiles(), clock or ManualClock(), MemoryMetadata())
    for n in range(entries):
        log.append(b"%d" % n).result()
        if clock is not None:
            clock.advance(1)
    return log


def test_positions_before_after_and_between_across_ledgers() -> None:
    log = small_log(8)
    reader = log.reader()
    assert reader.previous(Position(2, 0)) == Position(1, 2)
    assert reader.previous(Position(2, -1)) == Position(1, 2)  # (1, last) and (2, -1) are the same place
    assert reader.previous(Position(1, 0)) is None
    assert reader.next(Position(1, 2)) == reader.next(Position(2, -1)) == Position(2, 0)
    assert reader.advance(Position(1, 0), 4) == Position(2, 1)
    assert reader.advance(Position(2, -1), 1) == Position(2, 0)
    assert reader.advance(Position(1, 0), 100) == Position(3, 1)
    assert [reader.nth(n) for n in (0, 3, 7, 8)] == [Position(1, 0), Position(2, 0), Position(3, 1), None]
    assert reader.count(Position(1, 2), Position(3, 0)) == reader.count(Position(2, -1), Position(3, 0)) == 4
    log.close()


def test_find_newest_matching_by_binary_search() -> None:
    log = small_log(100)
    reader = log.reader()
    asked: list[int] = []

    def up_to(limit: int) -> Callable[[Entry], bool]:
        def matches(entry: Entry) -> bool:
            asked.append(int(bytes(entry.data)))
            return asked[-1] <= limit

        return matches

    for limit in (0, 41, 42, 98, 99):
        asked.clear()
        assert reader.find_newest(up_to(limit)) == reader.nth(limit)
        assert len(asked) <= 7
    assert reader.find_newest(up_to(-1)) is None  # the first entry does not match
    assert reader.find_newest(up_to(50), after=Position(10, 2)) == reader.nth(50)
    assert reader.find_newest(up_to(5), after=Position(10, 2)) is None
    log.close()


def test_find_by_time_with_the_index_and_with_a_clock_that_jumps() -> None:
    clock = ManualClock(1_000_000)
    log = small_log(20, clock)
    reader = log.reader()
    for n in (0, 1, 7, 18, 19):
        assert reader.find_by_time(1_000_000 + n * 1000) == reader.nth(n)
        assert reader.find_by_time(1_000_000 + n * 1000 + 999) == reader.nth(n)
    assert reader.find_by_time(999_999) is None
    assert reader.find_by_time(10**12) == log.end()
    clock.jump(-30)  # what is written now is later than all before it, whatever it says
    log.append(b"back").result()
    assert reader.find_by_time(1_000_000 + 5_000) == reader.nth(5)
    log.close()


def test_find_by_time_in_the_open_ledger_walks_over_little(tmp_path: Path) -> None:
    """Also where the clock goes back: an entry counts as late as the latest before it."""
    clock, rng = ManualClock(1_000_000), random.Random(6)
    log = Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0), clock=clock)
    files = CountingFiles()
    reader = LogReader.open(tmp_path / "log", files)
    for size in (100, 700, 64, 1, 3000):
        for _ in range(size):
            clock.jump(rng.choice((0.0, 0.001, 0.05, 1.0, -0.7)))
            log.append(bytes(400))
            if rng.random() < 0.03:
                log.append(b"").result()
        log.append(b"").result()
        times = [entry.wall_ms for entry in reader.read(reader.first, reader.end())]  # of their groups
        for wall_ms in (times[0] - 1, times[0], times[-1], max(times), *rng.choices(times, k=6)):
            before = files.bytes_read
            found = reader.find_by_time(wall_ms)
            expected = next((n for n, time in enumerate(times) if time > wall_ms), len(times)) - 1
            assert (found.entry_id if found is not None else -1) == expected
        assert files.bytes_read - before < 300_000, "the last search read more than 64 headers, and where they are"
    log.roll()
    assert reader.find_by_time(10**15) == log.end()
    reader.close()
    log.close()


def test_find_by_time_reads_few_headers_of_a_large_sealed_ledger(tmp_path: Path) -> None:
    clock = ManualClock(0)
    log = Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0), clock=clock)
    for n in range(1000):
        log.append(b"%d" % n)
        if n % 10 == 9:
            log.append(b"").result()
            clock.advance(1)
    log.roll()
    reader = log.reader()
    for second in (0, 50, 99):
        found = reader.find_by_time(second * 1000 + 500)
        assert found is not None
        assert found.entry_id == (second + 1) * 11 - 1
    log.close()


def test_random_ranges_read_the_same_with_and_without_the_cache(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    log = Log.open(tmp_path / "log", LogSettings(ledger_bytes_max=300_000))
    data = [rng.randbytes(rng.choice((0, 5, 1000, 40_000))) for _ in range(400)]
    positions = wait_all([log.append(item) for item in data])
    reader = LogReader.open(tmp_path / "log", RealFiles())
    for _ in range(60):
        low, high = sorted(rng.sample(range(400), 2))
        if rng.random() < 0.3:
            reader.cache.drop(reader.cache_key)
        found = [bytes(entry.data) for entry in reader.read(positions[low], positions[high])]
        assert found == data[low : high + 1]
        runs = [(r, a, b) for r, a, b in reader.runs(positions[low], positions[high])]
        assert sum(b - a + 1 for _, a, b in runs) == high - low + 1
    reader.close()
    log.close()


def test_a_reader_at_the_tail_forgets_the_places_of_sealed_ledgers(tmp_path: Path) -> None:
    settings = LogSettings(preallocate_bytes=0, maintenance_interval_seconds=0)
    with Log.open(tmp_path / "log", settings) as log, LogReader.open(tmp_path / "log", RealFiles()) as reader:
        for _ in range(10):
            span = log.append_many([b"entry"] * 100).result()
            assert len(list(reader.read(span.first, span.last))) == 100
            log.roll()
        reader.ledgers()
        assert reader._locator._places == {}


@pytest.mark.parametrize(("harm", "left"), [("skip", Position(3, 2)), ("truncate", Position(2, 2)), ("trim", None)])
def test_a_search_begins_again_where_entries_went_meanwhile(harm: str, left: Position | None) -> None:
    log = small_log(12)
    reader = LogReader.open(DIRECTORY, log.files, log.metadata)
    asked: list[bytes] = []

    def matches(entry: Entry) -> bool:
        asked.append(bytes(entry.data))
        if len(asked) == 1:
            if harm == "truncate":
                log.truncate(Position(2, 2))
            elif harm == "trim":
                log.clear()
            else:
                log.files.remove(ledger_path(DIRECTORY, 4))
                log.skip(4)
                reader.refresh()
        return True

    assert reader.find_newest(matches) == left
    reader.close()
    log.close()


def test_a_search_by_time_learns_of_a_skip_from_a_damaged_footer() -> None:
    clock = ManualClock()
    log = small_log(6, clock)
    reader = LogReader.open(DIRECTORY, log.files, log.metadata)
    begin = next(reader.scan(Position(1, 0), Position(1, 0))).wall_ms
    reader.ledgers()
    path = ledger_path(DIRECTORY, 1)
    with contextlib.closing(log.files.open(path, writable=True)) as file:
        size = file.size()
        file.write_at(64 + 69 + 30, b"\xff\xff")  # the second entry
        file.write_at(size - 200, bytes(200))  # the footer, with the third
    cache_for(log.files).drop(reader.cache_key)
    assert log.skip(1).entries == 2
    assert reader.find_by_time(begin + 1_500) == Position(1, 0)
    assert reader.find_by_time(begin + 3_500) == Position(2, 0)
    reader.close()
    log.close()


@pytest.mark.parametrize("read", [LogReader.read, LogReader.scan])
def test_a_read_that_meets_a_truncation_ends_with_bad_input(
    monkeypatch: pytest.MonkeyPatch, read: Callable[..., Iterator[Entry]]
) -> None:
    """The ledger list is read again where a copy is gone: what was truncated since is not looked for."""
    log = small_log(9)
    reader = LogReader.open(DIRECTORY, log.files, log.metadata)
    found = read(reader, Position(1, 0), Position(3, 2))
    got = [next(found).position]
    log.truncate(Position(2, 1))
    cache_for(log.files).drop(reader.cache_key)
    gone, opened = {2}, reader._store.open

    def opened_once(info: LedgerInfo, copy: int = 0) -> LedgerFile:
        if info.id in gone:
            gone.remove(info.id)
            raise FileNotFoundError(2, "gone", "ledger 2")
        return opened(info, copy)

    monkeypatch.setattr(reader._store, "open", opened_once)
    with pytest.raises(BadInput, match=r"2:2 was truncated meanwhile"):
        for entry in found:
            got.append(entry.position)
    assert got == [Position(1, 0), Position(1, 1), Position(1, 2), Position(2, 0), Position(2, 1)]
    reader.close()
    log.close()


def test_a_reader_that_is_closed_under_the_reads_of_other_threads(tmp_path: Path) -> None:
    """They end with `Closed`: not with a bad descriptor, and not with the bytes of a file that was opened since."""
    ends: list[BaseException] = []

    def read_on(reader: LogReader) -> None:
        try:
            while True:
                found = [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]
                assert found == [b"entry %d" % number for number in range(100)]
        except BaseException as error:
            ends.append(error)

    with Log.open(tmp_path / "log") as log:
        for pending in [log.append(b"entry %d" % number) for number in range(100)]:
            pending.result(10)
        for round_ in range(40):
            reader = LogReader.open(tmp_path / "log")
            threads = [threading.Thread(target=read_on, args=(reader,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            time.sleep(0.0005 * (round_ % 10))
            reader.close()
            for thread in threads:
                thread.join(30)
    assert len(ends) == 120
    assert {type(error) for error in ends} == {Closed}, ends
