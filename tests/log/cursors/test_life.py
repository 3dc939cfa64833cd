"""A cursor's life: opened once, owned by one, registered beside trims, deleted, expired; and what survives a crash."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed, Corruption, Fenced, Unavailable
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.log import Cursor, CursorTable, Log, LogReader, LogSettings, Position, wait_all
from penstock.log.cursors import acks as acks_module
from penstock.metadata import MemoryMetadata
from tests.support.files import UnlockedFiles

SETTINGS = LogSettings(ledger_entries_max=3, preallocate_bytes=0, retention_seconds=0, maintenance_interval_seconds=0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ledgers 1 to 4 with three entries each, two in ledger 5, and a cursor `keep` that needs all of them."""
    log = Log.open(tmp_path / "log", SETTINGS)
    log.open_cursor("keep").close()
    wait_all([log.append(b"%d" % n) for n in range(14)], 10)
    yield log
    with contextlib.suppress(Fenced, Closed):
        log.close()


def at(text: str) -> Position:
    return Position.parse(text)


def values(cursor: Cursor, max_entries: int = 100) -> list[int]:
    return [int(bytes(entry.data)) for entry in cursor.read(max_entries)]


def test_open_is_idempotent_and_shared(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour 17: whoever opens at the same time shares one recovery."""
    recoveries = []
    real = Cursor.open

    def slow(*args: object, **kwargs: object) -> Cursor:
        recoveries.append(threading.current_thread())
        together.wait(10)
        return real(*args, **kwargs)  # type: ignore[arg-type]

    together = threading.Event()
    monkeypatch.setattr(Cursor, "open", slow)
    got: list[Cursor] = []
    threads = [threading.Thread(target=lambda: got.append(log.open_cursor("c"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    together.set()
    for thread in threads:
        thread.join(10)
    assert len(got) == 8
    assert len({id(cursor) for cursor in got}) == 1
    assert len(recoveries) == 1
    assert log.open_cursor("c", "latest") is got[0]
    assert got[0].backlog() == 14


def test_a_failed_open_fails_all_and_the_next_one_works(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Cursor, "open", lambda *_, **__: (_ for _ in ()).throw(Unavailable("not now")))
        with pytest.raises(Unavailable):
            log.open_cursor("c")
    assert log.open_cursor("c").backlog() == 14


def test_list_and_delete(log: Log, tmp_path: Path) -> None:
    log.open_cursor("a").mark_delete(at("2:1")).result(5)
    log.open_cursor("b", "latest")
    assert [(info.name, info.open_here) for info in log.cursors()] == [("a", True), ("b", True), ("keep", False)]
    log.delete_cursor("a")
    assert [info.name for info in log.cursors()] == ["b", "keep"]
    assert not list((tmp_path / "log" / "cursors").glob("a[.-]*"))
    assert log.open_cursor("a").mark_delete_position == at("1:-1")  # a new one
    with pytest.raises(BadInput):
        log.delete_cursor("nobody")
    reader = LogReader.open(tmp_path / "log")
    elsewhere = CursorTable(reader)
    elsewhere.open("far")
    with pytest.raises(Unavailable):
        log.delete_cursor("far")
    with pytest.raises(Unavailable):
        log.open_cursor("far")
    elsewhere.close()
    log.delete_cursor("far")
    reader.close()


@pytest.mark.parametrize("name", ["../up", "", "a/b", "x" * 201])
def test_a_name_stays_in_its_directory(log: Log, name: str) -> None:
    with pytest.raises(BadInput):
        log.open_cursor(name)
    assert [info.name for info in log.cursors()] == ["keep"]


def test_a_second_owner_fences_every_ack_of_the_first(log: Log, tmp_path: Path) -> None:
    files = UnlockedFiles()
    reader = LogReader.open(tmp_path / "log")
    first = Cursor.open(reader, tmp_path / "log" / "cursors", "c", files=files)
    first.ack(at("1:1")).result(5)
    second = Cursor.open(reader, tmp_path / "log" / "cursors", "c", files=files)
    assert second.is_acked(at("1:1"))
    assert second.epoch == first.epoch + 1
    for _ in range(2):
        with pytest.raises(Fenced):
            first.ack(at("1:0")).result(5)
        with pytest.raises(Fenced):
            first.mark_delete(at("3:0")).result(5)
    with pytest.raises(Fenced):
        first.set_properties({"a": "b"}).result(5)
    assert first.mark_delete_position == at("1:-1")
    assert first.failed
    second.ack(at("1:2")).result(5)
    second.close()
    first.close()
    again = log.open_cursor("c")
    assert values(again, 2) == [0, 3]
    reader.close()


def test_properties_are_never_lost(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behaviour 24: over acks, mark-deletes without properties, resets, compactions and reopens."""
    monkeypatch.setattr(acks_module, "_COMPACT_BYTES_MIN", 2000)
    cursor = log.open_cursor("c")
    cursor.set_properties({"owner": "lake", "ü": "ß"}).result(5)
    cursor.mark_delete(at("1:0"), {"offset": "17"}).result(5)
    for _ in range(3):
        for _ in range(30):
            cursor.ack(at("3:0"), at("3:1")).result(5)
            cursor.mark_delete(at("1:2")).result(5)
        cursor.reset(at("1:1")).result(5)
        cursor.close()
        cursor = log.open_cursor("c")
        assert cursor.properties() == {"owner": "lake", "ü": "ß"}
        assert cursor.mark_delete_properties() == {"offset": "17"}
    cursor.set_properties({"owner": "lake"}).result(5)
    cursor.mark_delete(at("2:0"), {}).result(5)
    cursor.close()
    cursor = log.open_cursor("c")
    assert (cursor.properties(), cursor.mark_delete_properties()) == ({"owner": "lake"}, {})
    with pytest.raises(BadInput):
        cursor.set_properties({"n": 1})  # type: ignore[dict-item]


def test_out_of_order_acks_survive_a_kill(log: Log, tmp_path: Path) -> None:
    """Behaviour 20: what a process had acknowledged when it was killed is what its files hold at that moment."""
    cursor = log.open_cursor("c")
    rng = random.Random(20)
    positions = [Position(1 + n // 3, n % 3) for n in range(14)]
    acked = rng.sample(positions, 8)
    wait_all([cursor.ack(position) for position in acked], 5)
    shutil.copytree(tmp_path / "log" / "cursors", tmp_path / "killed")
    reader = LogReader.open(tmp_path / "log")
    again = Cursor.open(reader, tmp_path / "killed", "c")
    assert {position for position in positions if again.is_acked(position)} == set(acked)
    again.close()
    reader.close()


def test_expiry_is_asked_for_and_spares_who_is_active(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path / "log", SETTINGS, clock=clock)
    log.append(b"0").result(5)
    for name in ("idle", "reads", "open", "acks"):
        log.open_cursor(name)
    for name in ("idle", "reads", "acks"):
        log.open_cursor(name).close()
    clock.advance(3600)
    reads = log.open_cursor("reads")
    assert values(reads) == [0]
    assert reads.last_active_ms == clock.wall_ms()
    reads.close()
    acks = log.open_cursor("acks")
    acks.ack(at("1:0")).result(5)
    acks.close()
    clock.advance(10)
    assert log.expire_cursors(7200) == []
    assert log.expire_cursors(1800) == ["idle"]
    assert [info.name for info in log.cursors()] == ["acks", "open", "reads"]
    log.close()


def test_the_maintenance_expires_cursors_where_it_was_told_to(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = dataclasses.replace(SETTINGS, cursor_inactive_seconds_max=1800.0, maintenance_interval_seconds=0)
    log = Log.open(tmp_path / "log", settings, clock=clock)
    log.append(b"0").result(5)
    log.open_cursor("open")
    for name in ("idle", "busy"):
        log.open_cursor(name).close()
    clock.advance(1200)
    busy = log.open_cursor("busy")
    busy.ack(at("1:0")).result(5)
    busy.close()
    generations = sorted(path.name for path in (tmp_path / "log" / "cursors").glob("*.rlog"))
    log.maintain()
    assert [info.name for info in log.cursors()] == ["busy", "idle", "open"]
    assert sorted(path.name for path in (tmp_path / "log" / "cursors").glob("*.rlog")) == generations, "only looked at"
    clock.advance(1200)
    log.maintain()
    assert [info.name for info in log.cursors()] == ["busy", "open"]
    log.close()
    never = Log.open(tmp_path / "log", SETTINGS, clock=clock)
    clock.advance(10**7)
    never.maintain()
    assert [info.name for info in never.cursors()] == ["busy", "open"]
    never.close()


def test_trim_leaves_what_a_cursor_needs_and_follows_it(log: Log) -> None:
    """Behaviour 14: only what is durable counts, and what is durable is told in time."""
    assert log.trim() == []
    keep = log.open_cursor("keep")
    slow = log.open_cursor("slow")
    keep.mark_delete(at("4:0")).result(5)
    slow.mark_delete(at("2:2")).result(5)
    keep.close()
    slow.close()
    assert log.trim() == [1, 2]
    assert values(log.open_cursor("slow"), 1) == [6]
    fresh = log.open_cursor("fresh", "earliest")
    assert values(fresh, 1) == [6]


def test_a_reset_holds_trim_back_before_it_is_made(log: Log) -> None:
    keep = log.open_cursor("keep")
    keep.mark_delete(at("4:2")).result(5)
    keep.close()
    keep = log.open_cursor("keep")
    keep.reset(at("2:0")).result(5)
    log.trim()
    assert values(keep, 2) == [3, 4]
    keep.mark_delete(at("3:2")).result(5)
    keep.close()
    log.trim()
    assert log.reader().first == at("4:0")
    keep = log.open_cursor("keep")
    keep.reset(at("1:0")).result(5)  # trimmed: the first that is there
    assert values(keep, 1) == [9]


def test_a_cursor_made_at_the_moment_of_a_trim(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two loses: the cursor's start is chosen, a trim comes, and the cursor chooses again."""
    log.delete_cursor("keep")
    real = Cursor.open.__globals__["open_durable"].__globals__["start_position"]
    trims: list[list[int]] = []

    def start_position(reader: LogReader, start: object) -> Position:
        chosen: Position = real(reader, start)
        if not trims:
            trims.append(log.trim())
        return chosen

    monkeypatch.setattr("penstock.log.cursors.opening.start_position", start_position)
    cursor = log.open_cursor("c", "earliest")
    assert trims == [[1, 2, 3, 4]]
    assert cursor.mark_delete_position == at("5:-1")
    assert values(cursor) == [12, 13]
    assert log.trim() == []


def test_a_cursor_in_a_trimmed_ledger_goes_on_with_the_first_that_is_there(log: Log) -> None:
    """Behaviour 15, for an open one, a closed one and one that is not durable."""
    keep = log.open_cursor("keep")
    memory = log.open_cursor("m", "earliest", durable=False)
    closed = log.open_cursor("closed")
    closed.ack(at("1:1")).result(5)
    closed.close()
    log.clear()
    log.append(b"14").result(5)
    for cursor in (keep, memory, log.open_cursor("closed")):
        assert values(cursor) == [14], cursor.name
        assert cursor.backlog() == 1
        cursor.mark_delete(log.end()).result(5)
        assert cursor.backlog() == 0


def test_empty_ledgers_are_skipped(tmp_path: Path) -> None:
    """Behaviour 8: a log that was opened and closed again and again has gaps in its numbers."""
    for number in range(4):
        log = Log.open(tmp_path / "log", SETTINGS)
        cursor = log.open_cursor("c")
        if number % 2:
            log.append(b"%d" % number).result(5)
        log.close()
    log = Log.open(tmp_path / "log", SETTINGS)
    cursor = log.open_cursor("c")
    first, second = cursor.read()
    assert first.position.ledger_id + 1 < second.position.ledger_id
    cursor.ack(second.position).result(5)
    cursor.ack(first.position).result(5)
    assert cursor.mark_delete_position == second.position
    assert cursor.backlog() == 0
    log.append(b"5").result(5)
    assert values(cursor) == [5]
    log.close()


def test_no_thread_is_left_and_none_belongs_to_a_cursor(tmp_path: Path) -> None:
    """Behaviour 19. In a process of its own: another test's log would share the threads."""
    code = f"""if True:
    import threading
    from penstock.log import Log, LogSettings, Position, wait_all
    before = set(threading.enumerate())
    log = Log.open({str(tmp_path / "log")!r}, LogSettings(maintenance_interval_seconds=0))
    log.append(b"0").result(5)
    alone = len(threading.enumerate())
    cursors = [log.open_cursor(f"c{{n}}") for n in range(40)]
    wait_all([cursor.ack(Position(1, 0)) for cursor in cursors], 10)
    assert len(threading.enumerate()) <= alone + 5, threading.enumerate()
    log.close()
    assert set(threading.enumerate()) <= before, threading.enumerate()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_an_ack_after_the_close_is_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", SETTINGS)
    log.append(b"0").result(5)
    cursor = log.open_cursor("c")
    log.close()
    with pytest.raises(Closed):
        cursor.ack(at("1:0"))


def test_damage_is_named_and_never_the_start_in_silence(log: Log, tmp_path: Path) -> None:
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:0")).result(5)
    cursor.ack(at("3:0")).result(5)
    cursor.close()
    directory = tmp_path / "log" / "cursors"
    (records,) = directory.glob("c-*.rlog")
    names = {path.name for path in directory.iterdir()}
    whole = records.read_bytes()
    for offset in (70, 140, 200, len(whole) - 40):
        damaged = bytearray(whole)
        damaged[offset] ^= 1
        records.write_bytes(damaged)
        with pytest.raises(Corruption, match="c-000"):
            log.open_cursor("c")
        assert records.read_bytes() == damaged
    records.write_bytes(whole)
    assert log.open_cursor("c").mark_delete_position == at("2:0")
    log.open_cursor("c").close()
    for path in directory.glob("c[.-]*"):
        path.unlink()
        with pytest.raises(Corruption):
            log.open_cursor("c")
    assert {path.name for path in directory.iterdir()} - {"c.lock"} == {name for name in names if name[0] != "c"}
    log.delete_cursor("c")  # the way out
    assert log.open_cursor("c").backlog() == 14


class DownMetadata(MemoryMetadata):
    """A store that can be told to be away."""

    away = False

    def down(self) -> None:
        if self.away:
            raise Unavailable("the metadata store is away")


def test_acks_and_reads_work_while_the_metadata_store_is_away() -> None:
    metadata = DownMetadata()
    metadata.before_write = metadata.down
    log = Log.open(Path("/s/log"), SETTINGS, MemoryFiles(), ManualClock(), metadata)
    wait_all([log.append(b"%d" % n) for n in range(8)], 5)
    cursor = log.open_cursor("c")
    metadata.away = True
    assert len(cursor.read()) == 8
    cursor.mark_delete(at("2:2")).result(5)
    cursor.ack(at("3:1")).result(5)
    assert cursor.mark_delete_position == at("2:2")
    with pytest.raises(Unavailable):
        cursor.reset(at("1:0"))
    assert cursor.mark_delete_position == at("2:2")
    assert cursor.backlog() == 1
    metadata.away = False
    cursor.close()
    assert log.cursors()[0].mark_delete == at("2:2")
    log.close()


def test_acks_go_on_beside_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many compactions under acks from several threads; what is found after a kill at any moment is a prefix of
    them."""
    monkeypatch.setattr(acks_module, "_COMPACT_BYTES_MIN", 3000)
    log = Log.open(tmp_path / "log", LogSettings(preallocate_bytes=0))
    wait_all([log.append(b"x") for _ in range(3000)], 20)
    cursor = log.open_cursor("c")
    done: list[Position] = []

    def work(first: int) -> None:
        for n in range(first, 3000, 3):
            position = Position(1, n)
            cursor.ack(position).result(10)
            done.append(position)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    reader = LogReader.open(tmp_path / "log")
    copies = 0
    while any(thread.is_alive() for thread in threads):
        told = list(done)
        target = tmp_path / f"copy{copies}"
        with contextlib.suppress(FileNotFoundError, shutil.Error):
            shutil.copytree(tmp_path / "log" / "cursors", target)
            # A copy is not atomic: only one with the generation that the copied slot names is a kill.
            with contextlib.suppress(Corruption):
                again = Cursor.open(reader, target, "c")
                assert all(again.is_acked(position) for position in told)
                again.close()
                copies += 1
        shutil.rmtree(target, ignore_errors=True)
    for thread in threads:
        thread.join()
    assert copies > 3
    assert cursor.mark_delete_position == Position(1, 2999)
    cursor.close()
    (generation,) = (tmp_path / "log" / "cursors").glob("*.rlog")
    assert int(generation.stem[2:]) > cursor.epoch + 3
    assert generation.stat().st_size < 30_000
    again = Cursor.open(reader, tmp_path / "log" / "cursors", "c")
    assert again.backlog() == 0
    again.close()
    reader.close()
    log.close()


def power(files: MemoryFiles) -> None:
    if files.power_is_off:
        raise PowerCut("the power is off")


def life(files: MemoryFiles, metadata: MemoryMetadata, told: dict[str, set[Position]]) -> None:
    """Makes, acks, resets, compacts and deletes cursors until it ends or the power goes."""
    metadata.before_write = lambda: power(files)
    with contextlib.suppress(PowerCut), contextlib.ExitStack() as stack:
        log = Log.open(Path("/s/log"), SETTINGS, files, ManualClock(), metadata)

        def close() -> None:
            with contextlib.suppress(PowerCut):
                log.close()

        stack.callback(close)
        for n in range(6):
            log.append(b"%d" % n).result(10)
        for name in ("a", "b"):
            cursor = log.open_cursor(name)
            told[name] = set()
            for position in (at("1:1"), at("2:0"), at("1:0")):
                cursor.ack(position).result(10)
                told[name].add(position)
        cursor = log.open_cursor("a")
        del told["a"]
        cursor.reset(at("1:1")).result(10)
        told["a"] = {at("1:0")}
        cursor.close()
        del told["b"]
        log.delete_cursor("b")
        told["b"] = set()
        cursor = log.open_cursor("b")
        cursor.ack(at("2:2")).result(10)
        told["b"] = {at("2:2")}


def test_power_cut_at_every_operation_of_cursors_coming_and_going(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks_module, "_COMPACT_BYTES_MIN", 500)
    whole = MemoryFiles()
    told: dict[str, set[Position]] = {}
    life(whole, MemoryMetadata(), told)
    assert told == {"a": {at("1:0")}, "b": {at("2:2")}}
    for operation in range(1, whole.operations + 1):
        files, metadata = MemoryFiles(), MemoryMetadata()
        files.cut_power_at(operation)
        told = {}
        life(files, metadata, told)
        metadata.before_write = lambda: None
        for fate in range(2):
            after = files.crash(random.Random(f"{operation} {fate}"))
            copy = MemoryMetadata()
            copy._entries = dict(metadata._entries)
            log = Log.open(Path("/s/log"), SETTINGS, after, ManualClock(), copy)
            ledgers = {info.name for info in log.cursors()}
            for name, acked in told.items():
                assert name in ledgers or not acked, (operation, fate, name)
                cursor = log.open_cursor(name)
                for position in acked:
                    assert cursor.is_acked(position), (operation, fate, name, position)
                assert cursor.backlog() + sum(
                    cursor.is_acked(Position(ledger, entry)) for ledger in (1, 2) for entry in range(3)
                ) == sum(view.entries for view in log.reader().ledgers())
            log.close()


def test_a_cursor_whose_registration_is_lost_is_adopted_where_it_is(log: Log) -> None:
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:1")).result(5)
    for n in range(3):
        cursor.ack(Position(3, n % 3)).result(5)
    cursor.close()
    key = "cursor/log/c"
    found = log.metadata.get(key)
    assert found is not None
    log.metadata.delete(key, found.version)  # as if the metadata came from an older copy
    again = log.open_cursor("c", "latest")
    assert values(again, 2) == [5, 9]
    assert [(info.name, info.mark_delete) for info in log.cursors()] == [("c", at("2:1")), ("keep", at("1:-1"))]


def test_the_pointer_in_the_metadata_is_never_ahead_of_what_is_durable() -> None:
    """What trim relies on. The sync of the acks is held up, and the pointer must wait for it."""
    gate = threading.Event()
    gate.set()

    def hold(_number: int, operation: str, path: Path) -> None:
        if operation == "datasync" and path.suffix == ".rlog":
            gate.wait(10)

    log = Log.open(Path("/s/log"), SETTINGS, MemoryFiles(hold), ManualClock(), MemoryMetadata())
    wait_all([log.append(b"%d" % n) for n in range(8)], 5)
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("1:2")).result(5)
    gate.clear()
    waiting = [cursor.mark_delete(at("2:2")), cursor.ack(at("3:0"))]
    assert cursor.mark_delete_position == at("1:2")
    cursor._acks._pointer.publish(cursor._acks._current)  # type: ignore[union-attr]
    assert log.cursors()[0].mark_delete == at("1:2")
    assert log.trim() == [1]
    gate.set()
    wait_all(waiting, 5)
    assert cursor.mark_delete_position == at("3:0")
    cursor.close()
    assert log.cursors()[0].mark_delete == at("3:0")
    assert log.trim() == [2]
    log.close()
