"""A cursor's life: one owner at a time, and what survives reopens, compactions, kills and power cuts."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import google_crc32c
import pytest

from penstock.clock import ManualClock
from penstock.errors import BadInput, Closed, Corruption, Fenced, OutcomeUnknown, StorageFailed
from penstock.files import REAL_FILES
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.log import Cursor, CursorTable, Log, LogReader, LogSettings, Pending, Position, wait_all
from penstock.log.cursors import acks as acks_module
from penstock.log.cursors import opening
from penstock.log.cursors.records import replay
from penstock.log.records.generations import generation_of, generation_path
from penstock.log.records.reading import read_records
from penstock.metadata import MemoryMetadata
from penstock.operations.log.listing import list_cursors
from tests.log.cursors.support import SETTINGS, at, values
from tests.support.files import UnlockedFiles
from tests.support.waiting import LIMIT_SECONDS, wait_until


def test_a_second_owner_fences_every_ack_of_the_first(log: Log, tmp_path: Path) -> None:
    files = UnlockedFiles()
    reader = LogReader.open(tmp_path / "log")
    first = Cursor.open(reader, tmp_path / "log" / "cursors", "c", files=files)
    first.ack(at("1:1")).result()
    second = Cursor.open(reader, tmp_path / "log" / "cursors", "c", files=files)
    assert second.is_acked(at("1:1"))
    assert second.epoch == first.epoch + 1
    for _ in range(2):
        with pytest.raises(Fenced):
            first.ack(at("1:0")).result()
        with pytest.raises(Fenced):
            first.mark_delete(at("3:0")).result()
    with pytest.raises(Fenced):
        first.set_properties({"a": "b"}).result()
    assert first.mark_delete_position == at("1:-1")
    assert first.failed
    second.ack(at("1:2")).result()
    second.close()
    first.close()
    again = log.open_cursor("c")
    assert values(again, 2) == [0, 3]
    reader.close()


def test_properties_are_never_lost(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """They survive acks, mark-deletes without properties, resets, compactions and reopens."""
    monkeypatch.setattr(acks_module, "_COMPACT_BYTES_MIN", 2000)
    cursor = log.open_cursor("c")
    cursor.set_properties({"owner": "lake", "ü": "ß"}).result()
    cursor.mark_delete(at("1:0"), {"offset": "17"}).result()
    for _ in range(3):
        for _ in range(30):
            cursor.ack(at("3:0"), at("3:1")).result()
            cursor.mark_delete(at("1:2")).result()
        cursor.reset(at("1:1")).result()
        cursor.close()
        cursor = log.open_cursor("c")
        assert cursor.properties() == {"owner": "lake", "ü": "ß"}
        assert cursor.mark_delete_properties() == {"offset": "17"}
    cursor.set_properties({"owner": "lake"}).result()
    cursor.mark_delete(at("2:0"), {}).result()
    cursor.close()
    cursor = log.open_cursor("c")
    assert (cursor.properties(), cursor.mark_delete_properties()) == ({"owner": "lake"}, {})
    with pytest.raises(BadInput):
        cursor.set_properties({"n": 1})  # type: ignore[dict-item]


def test_out_of_order_acks_survive_a_kill(log: Log, tmp_path: Path) -> None:
    """A copy of the files stands for a kill at that moment: it holds every ack that was acknowledged."""
    cursor = log.open_cursor("c")
    rng = random.Random(20)
    positions = [Position(1 + n // 3, n % 3) for n in range(14)]
    acked = rng.sample(positions, 8)
    wait_all([cursor.ack(position) for position in acked])
    shutil.copytree(tmp_path / "log" / "cursors", tmp_path / "killed")
    reader = LogReader.open(tmp_path / "log")
    again = Cursor.open(reader, tmp_path / "killed", "c")
    assert {position for position in positions if again.is_acked(position)} == set(acked)
    again.close()
    reader.close()


def test_no_thread_is_left_and_none_belongs_to_a_cursor(tmp_path: Path) -> None:
    """In a process of its own: another test's log would share the threads."""
    code = f"""if True:
    import threading
    from penstock.log import Log, LogSettings, Position, wait_all
    before = set(threading.enumerate())
    log = Log.open({str(tmp_path / "log")!r}, LogSettings(maintenance_interval_seconds=0))
    log.append(b"0").result()
    alone = len(threading.enumerate())
    cursors = [log.open_cursor(f"c{{n}}") for n in range(40)]
    wait_all([cursor.ack(Position(1, 0)) for cursor in cursors])
    assert len(threading.enumerate()) <= alone + 5, threading.enumerate()
    log.close()
    assert set(threading.enumerate()) <= before, threading.enumerate()
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr


def test_an_ack_after_the_close_is_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", SETTINGS)
    log.append(b"0").result()
    cursor = log.open_cursor("c")
    log.close()
    with pytest.raises(Closed):
        cursor.ack(at("1:0"))


@pytest.mark.parametrize("offset", [70, 140, 200, -40, None])
def test_a_damaged_cursor_goes_on_where_it_was_registered(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture, offset: int | None
) -> None:
    """Never at the start, never with an ack that nobody made; the damage is named, and the files are kept."""
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:0")).result()
    cursor.ack(at("3:0")).result()
    cursor.close()
    directory = tmp_path / "log" / "cursors"
    (records,) = directory.glob("c-*.rlog")
    damaged = bytearray(records.read_bytes())
    if offset is None:
        (directory / "c.current").unlink()
    else:
        damaged[offset] ^= 1
        records.write_bytes(damaged)
    again = log.open_cursor("c")
    assert again.mark_delete_position == at("2:0")
    assert not again.is_acked(at("3:0"))
    assert "cursor c of log log is damaged" in caplog.text
    assert damaged in [path.read_bytes() for path in directory.glob("c-*.rlog.damaged-*")]
    (info,) = (info for info in log.cursors() if info.name == "c")
    (line,) = (line for line in list_cursors(tmp_path / "log") if line.name == "c")
    assert info.damage == line.damage != ""
    assert not line.fault
    again.mark_delete(at("3:0")).result(5)
    again.close()
    caplog.clear()
    assert log.open_cursor("c").mark_delete_position == at("3:0")
    assert not caplog.text
    log.delete_cursor("c")
    assert list(directory.glob("c-*.rlog.damaged-*"))


def test_foreign_things_in_the_place_of_its_files_are_named(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A `.current` with another content, a directory where a file should be: the cursor falls back as for other damage."""
    directory = tmp_path / "log" / "cursors"
    for text in (b"[]", b'{"format":"x"}', b"{}", b"7"):
        log.open_cursor("c").close()
        (directory / "c.current").write_bytes(text + f"\n{google_crc32c.value(text):08x}\n".encode())
        log.open_cursor("c").close()
        assert "it does not name a record log" in caplog.text
        caplog.clear()
    (records,) = directory.glob("c-*.rlog")
    records.unlink()
    records.mkdir()
    with pytest.raises(StorageFailed, match="is a directory") as refused:
        log.delete_cursor("c")
    assert "move it away" in refused.value.hint
    records.rmdir()
    log.delete_cursor("c")
    log.open_cursor("c").close()
    (records,) = directory.glob("c-*.rlog")
    records.unlink()
    records.mkdir()
    log.open_cursor("c").close()
    assert "a directory stands in the place of the file" in caplog.text


def test_a_damaged_cursor_is_opened_in_the_callback_of_another_ones_ack(log: Log, tmp_path: Path) -> None:
    """What its opening closes on the way is closed on that thread, not behind it."""
    log.open_cursor("c").close()
    (records,) = (tmp_path / "log" / "cursors").glob("c-*.rlog")
    damaged = bytearray(records.read_bytes())
    damaged[-1] ^= 1
    records.write_bytes(damaged)
    opened: Pending[Cursor] = Pending()

    def reopen(_: object) -> None:
        try:
            opened.complete(log.open_cursor("c"))
        except Exception as error:
            opened.fail(error)

    log.open_cursor("keep").ack(at("1:0")).add_done_callback(reopen)
    assert values(opened.result(LIMIT_SECONDS), 100) == list(range(14))


@pytest.mark.parametrize("step", ["files_aside", "encode_snapshot"])
def test_a_crash_inside_a_fall_back_leaves_a_cursor_that_falls_back_again(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """Once the damaged files have other names, and once the new record log is made and has no record yet."""
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:0")).result(5)
    cursor.close()
    directory = tmp_path / "log" / "cursors"
    (records,) = directory.glob("c-*.rlog")
    damaged = bytearray(records.read_bytes())
    damaged[-1] ^= 1
    records.write_bytes(damaged)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(opening, step, crash)
        with pytest.raises(KeyboardInterrupt):
            log.open_cursor("c")
    assert damaged in [path.read_bytes() for path in directory.glob("c-*.rlog.damaged-*")]
    again = log.open_cursor("c")
    assert again.mark_delete_position == at("2:0")
    assert "cursor c of log log is damaged" in caplog.text
    assert [info.damage != "" for info in log.cursors() if info.name == "c"] == [True]
    again.mark_delete(at("3:0")).result(5)


def test_a_cursor_of_which_nothing_is_there_is_refused(log: Log, tmp_path: Path) -> None:
    """Its directory may be on a disk that is not mounted."""
    cursor = log.open_cursor("c")
    cursor.mark_delete(at("2:0")).result(5)
    cursor.close()
    for path in (tmp_path / "log" / "cursors").glob("c[.-]*"):
        path.unlink()
    with pytest.raises(Corruption, match="registered"):
        log.open_cursor("c")
    log.delete_cursor("c")  # the way out
    assert log.open_cursor("c").backlog() == 14


def test_a_closed_cursor_is_small_however_often_it_was_opened(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0))
    log.append_many([b"x"] * 200).result(60)
    for restart in range(3):
        cursor = log.open_cursor("c")
        written = cursor.record_bytes
        while cursor.record_bytes < written + (40 << 10):
            cursor.ack_each(Position(1, 2 * number + 1) for number in range(100)).result(5)
        cursor.close()
        cursor = log.open_cursor("c")
        assert cursor.record_bytes < 4 << 10, restart
        cursor.close()
    log.close()


def test_acks_go_on_beside_a_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many compactions under acks from several threads; what is found after a kill at any moment is a prefix of
    them."""
    monkeypatch.setattr(acks_module, "_COMPACT_BYTES_MIN", 3000)
    directory = tmp_path / "log" / "cursors"
    log = Log.open(tmp_path / "log", LogSettings(preallocate_bytes=0))
    wait_all([log.append(b"x") for _ in range(3000)])
    cursor = log.open_cursor("c")
    done: list[Position] = []

    def work(first: int) -> None:
        for n in range(first, 3000, 3):
            position = Position(1, n)
            cursor.ack(position).result()
            done.append(position)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    reader = LogReader.open(tmp_path / "log")
    copies = 0

    def look_at_a_copy() -> int:
        """1 where the copy is one that a kill may leave."""
        told = list(done)
        target = tmp_path / "copy"
        try:
            shutil.copytree(directory, target)
            again = Cursor.open(reader, target, "c")
        except (FileNotFoundError, shutil.Error, Corruption):
            return 0  # a copy is not atomic: this one mixes files of two moments
        else:
            if any(target.glob("*.damaged-*")):
                again.close()
                return 0  # for the same reason
            assert all(again.is_acked(position) for position in told)
            again.close()
            return 1
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def compacted_often() -> bool:
        (generation,) = directory.glob("*.rlog")
        return int(generation.stem[2:]) > cursor.epoch + 3 and generation.stat().st_size < 30_000

    while any(thread.is_alive() for thread in threads):
        copies += look_at_a_copy()
    for thread in threads:
        thread.join()
    last = Position(1, 2999)
    assert cursor.mark_delete_position == last

    def ack_one_more() -> bool:
        """On a busy machine few compactions may have ended beside the acks so far: only an ack begins the next one."""
        nonlocal last
        last = log.append(b"x").result()
        cursor.ack(last).result()
        wait_until(lambda: not cursor._acks._compacting, "end of the compaction")
        return compacted_often()

    wait_until(lambda: not cursor._acks._compacting, "end of the compaction")
    if not compacted_often():
        wait_until(ack_one_more, "compactions")
    while copies <= 3:
        copies += look_at_a_copy()
    cursor.close()
    (generation,) = directory.glob("*.rlog")
    assert generation.stat().st_size < 30_000
    again = Cursor.open(reader, directory, "c")
    assert again.mark_delete_position == last
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
    with contextlib.suppress(PowerCut, OutcomeUnknown), contextlib.ExitStack() as stack:
        log = Log.open(Path("/s/log"), SETTINGS, files, ManualClock(), metadata)

        def close() -> None:
            with contextlib.suppress(PowerCut):
                log.close()

        stack.callback(close)
        for n in range(6):
            log.append(b"%d" % n).result()
        for name in ("a", "b"):
            cursor = log.open_cursor(name)
            told[name] = set()
            for position in (at("1:1"), at("2:0"), at("1:0")):
                cursor.ack(position).result()
                told[name].add(position)
        cursor = log.open_cursor("a")
        del told["a"]
        cursor.reset(at("1:1")).result()
        told["a"] = {at("1:0")}
        cursor.close()
        del told["b"]
        log.delete_cursor("b")
        told["b"] = set()
        cursor = log.open_cursor("b")
        cursor.ack(at("2:2")).result()
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
            log = Log.open(Path("/s/log"), SETTINGS, after, ManualClock(), metadata.copy())
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


def test_the_properties_of_a_mark_delete_are_never_durable_before_it(log: Log, tmp_path: Path) -> None:
    """A power cut keeps any first part of the records of one write: each such part has a mark-delete with its own ones."""
    cursor, go, held = log.open_cursor("c"), threading.Event(), threading.Event()

    def hold(_: Pending[None]) -> None:
        held.set()
        go.wait(LIMIT_SECONDS)

    cursor.mark_delete(at("1:0"), {"at": "1:0"}).add_done_callback(hold)  # holds up the thread that commits
    assert held.wait(LIMIT_SECONDS)
    waiting = [
        cursor.set_properties({"owner": "lake"}),
        cursor.mark_delete(at("2:0"), {"at": "2:0"}),
        cursor.set_properties({"owner": "bus"}),
        cursor.reset(at("1:2")),
        cursor.mark_delete(at("3:0"), {"at": "3:0"}),
    ]
    go.set()
    wait_all(waiting, LIMIT_SECONDS)
    records = read_records(REAL_FILES, tmp_path / "log" / "cursors", "c")
    found = []
    for count in range(1, len(records) + 1):
        state = replay(records[:count], log.uuid, log.reader().ledgers())
        assert state is not None
        found.append((str(state.acked.mark_delete), state.position_properties.get("at")))
    assert [pair for pair, _ in itertools.groupby(found)] == [
        ("1:-1", None),
        ("1:0", "1:0"),
        ("2:0", "2:0"),
        ("1:1", "2:0"),  # a reset has none
        ("3:0", "3:0"),
    ]
    assert cursor.properties() == state.properties == {"owner": "bus"}


def test_a_deletion_that_the_power_cut_stopped_leaves_no_generation() -> None:
    """Of a cursor with several, which openings that were cut short leave. The next cursor of that name would come to the
    number of the one left, where the clock was set back meanwhile."""
    directory, cursors, operation, finished = Path("/log"), Path("/log/cursors"), 0, False
    while not finished:
        operation += 1
        for fate in range(30):
            files, metadata, clock = MemoryFiles(), MemoryMetadata(), ManualClock()
            log = Log.open(directory, SETTINGS, files, clock, metadata)
            log.open_cursor("c").close()
            (made,) = (number for name in files.list(cursors) if (number := generation_of("c", name)) is not None)
            for claimed in (made + 1, made + 2):
                files.create(generation_path(cursors, "c", claimed)).close()
                files.sync_directory(cursors)
            files.cut_power_at(files.operations + operation)
            try:
                log.delete_cursor("c")
                finished = True
            except PowerCut:
                pass
            after = files.crash(random.Random(f"{operation} {fate}"))
            with contextlib.suppress(PowerCut):
                log.close()
            with Log.open(directory, SETTINGS, after, clock, metadata) as again:
                with contextlib.suppress(BadInput):
                    again.delete_cursor("c")
                assert after.list(cursors) == [], (operation, fate)
    assert operation > 6


def test_a_cursor_of_another_log_that_was_not_used_yet_stays_its_own(tmp_path: Path) -> None:
    """Two logs with one directory for their cursors: its records look like what an interrupted making leaves."""
    with Log.open(tmp_path / "a", SETTINGS) as a, Log.open(tmp_path / "b", SETTINGS) as b:
        for log in (a, b):
            wait_all([log.append(b"%d" % n) for n in range(3)])
        of_a, of_b = (CursorTable(log.reader(), tmp_path / "cursors") for log in (a, b))
        of_a.open("c", at("1:1")).close()
        with pytest.raises(Corruption, match="belongs to log"):
            of_b.open("c")
        assert of_a.open("c").mark_delete_position == at("1:1")
        of_a.close()
        of_b.close()
