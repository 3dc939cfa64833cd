"""What is the native engine's alone: its format, its lookups, its merges, and that nothing grows."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import google_crc32c
import pytest

from penstock.clock import ManualClock
from penstock.errors import Corruption, NotSupported
from penstock.files import RealFiles
from penstock.files.memory import MemoryFiles
from penstock.log import Position, StateChange
from penstock.log.frames.format import encode_changes
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.native.base import RunsBase
from penstock.state.engines.native.checkpoints import Checkpoint
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.engines.native.lookup import getter
from penstock.state.engines.native.manifest import CheckpointManifest
from penstock.state.engines.opening import open_engine
from penstock.state.engines.overlay import Layer
from penstock.state.settings import StateSettings
from tests.state.engines.conftest import Opener
from tests.state.engines.native.memory import DIRECTORY, at, content, opened

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "checkpoint-1"


def golden_program(engine: StateEngine) -> None:
    """What made the golden files: two checkpoints, tombstones, two namespaces, a value longer than a page."""
    engine.apply([StateChange(0, b"\x01capture\x00\x01position\x00\x01", b"registration")])
    engine.apply([StateChange(1, b"%03d" % number, b"value %d" % number) for number in range(100)])
    engine.apply([StateChange(7, b"long", b"x" * 9000), StateChange(7, b"", b"")])
    engine.write(engine.freeze(), Position(3, -1))
    engine.apply([StateChange(1, b"%03d" % number, None) for number in range(0, 100, 7)])
    engine.apply([StateChange(7, b"new", b"\x00\xff")])
    engine.write(engine.freeze(), Position(3, 41))


def golden_engine(files: MemoryFiles) -> StateEngine:
    settings = StateSettings(merge_in_background=False, merge_ratio=1e9)
    return open_engine("native", DIRECTORY, files=files, clock=ManualClock(), settings=settings)


def test_the_golden_files_are_what_is_written_today() -> None:
    files = MemoryFiles()
    with golden_engine(files) as engine:
        golden_program(engine)
    assert files.list(DIRECTORY) == sorted(path.name for path in GOLDEN.iterdir())
    for name in files.list(DIRECTORY):
        assert bytes(files._names[DIRECTORY / name].content) == (GOLDEN / name).read_bytes(), name


def test_the_golden_files_are_read() -> None:
    model = open_engine("native", None)
    model.apply([StateChange(1, b"%03d" % number, b"value %d" % number) for number in range(100) if number % 7])
    engine = open_engine("native", GOLDEN, read_only=True)
    assert engine.position == Position(3, 41)
    assert list(engine.verify()) == []
    with engine.create_snapshot() as snapshot, model.create_snapshot() as want:
        assert snapshot.namespaces() == [0, 1, 7]
        assert list(snapshot.iterate(1)) == list(want.iterate(1))
        assert list(snapshot.iterate(7)) == [(b"", b""), (b"long", b"x" * 9000), (b"new", b"\x00\xff")]
    older = open_engine("native", GOLDEN, read_only=True, at=Position(3, 40))
    assert older.position == Position(3, -1)
    assert older.get(1, b"007") == b"value 7"
    assert older.get(7, b"new") is None


@pytest.mark.parametrize("seed", range(3))
def test_lookups_in_python_and_compiled_agree(seed: int) -> None:
    chosen = random.Random(seed)
    files = MemoryFiles()
    engine = opened(
        files,
        settings=StateSettings(merge_in_background=False, merge_ratio=1e9, merge_runs_max=99, spare_ratio_max=1e9),
    )
    keys = [chosen.randbytes(chosen.choice((0, 1, 4, 16, 40))) for _ in range(3000)]
    namespaces = (1, 2, 1 + (1 << 32))  # the first and the last have the same hashes
    for number in range(4):
        engine.apply(
            [
                StateChange(chosen.choice(namespaces), key, None if chosen.random() < 0.2 else chosen.randbytes(chosen.choice((0, 90, 4100))))
                for key in chosen.sample(keys, 900)
            ]
        )  # fmt: skip
        engine.write(engine.freeze(), at(number))
    engine.close()
    engine = opened(files, settings=StateSettings(merge_in_background=False))
    base = engine._stack.base  # type: ignore[attr-defined]
    assert isinstance(base, RunsBase)
    assert len(base.runs) == 4
    with engine.create_snapshot() as snapshot:
        for namespace in (*namespaces, 3):
            iterated = dict(snapshot.iterate(namespace))
            fresh = opened(files)
            assert isinstance(fresh, NativeEngine)
            runs = fresh._checkpoints.kept[0].runs
            compiled = getter(namespace, runs[::-1])
            in_python = [run.finder(namespace) for run in runs[::-1]]
            assert namespace == 3 or compiled(keys[0]) is ..., "a page that nobody checked"
            for key in [*keys, b"never there", b"x" * 5000]:
                assert _python(in_python, namespace, key) == iterated.get(key), key
                assert compiled(key) == iterated.get(key), key


def _python(finders: list[object], namespace: int, key: bytes) -> bytes | None:
    from penstock.state.engines.native.format import HASH_FACTOR, U32_MASK, salt_of
    from penstock.state.engines.overlay import MISSING

    for find in finders:
        if find is not None:
            value = find(key, (google_crc32c.value(key) ^ salt_of(namespace)) * HASH_FACTOR & U32_MASK)  # type: ignore[operator]
            if value is not MISSING:
                return value  # type: ignore[no-any-return]
    return None


def test_many_encoded_changes_are_applied_as_few_are() -> None:
    chosen = random.Random(1)
    changes = [
        StateChange(
            chosen.choice((1, 1, 1, 2, 1 << 40)), b"%d" % chosen.randrange(500), chosen.choice((None, b"", chosen.randbytes(90)))
        )
        for _ in range(4000)
    ]  # fmt: skip
    one, other = open_engine("native", None), open_engine("native", None)
    one.apply(changes)
    raw = encode_changes(changes, 7)
    assert len(raw) > 64 << 10
    assert other.apply_encoded(raw) == len(changes)
    assert content(one) == content(other)
    assert one.changed_bytes == other.changed_bytes
    for wrong, error in ((raw[:-1], Corruption), (raw + raw[:8] + b"\x07" + raw[9:], NotSupported)):
        with pytest.raises(error):
            other.apply_encoded(wrong)
    assert content(one) == content(other), "all of them or none"


def test_keys_that_a_sort_could_mistake(native: Opener) -> None:
    """Ties in the first eight bytes, zero bytes at the end, prefixes of each other, many duplicates of a long start."""
    chosen = random.Random(2)
    starts = [b"", b"\x00", b"same eight", b"same eight bytes and more"]
    keys = {chosen.choice(starts) + bytes(chosen.choices((0, 1, 255), k=chosen.randrange(12))) for _ in range(5000)}
    engine = native()
    engine.apply([StateChange(1, key, b"v") for key in keys])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, key, b"w") for key in chosen.sample(sorted(keys), 500)])
    engine.write(engine.freeze(), at(1))
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(1)] == sorted(keys)
    engine.compact()
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(1)] == sorted(keys)
        for key in chosen.sample(sorted(keys), 300):
            assert next(snapshot.iterate(1, key)) == (key, engine.get(1, key))


def test_a_large_layer_is_iterated_in_order() -> None:
    engine = open_engine("native", None)
    keys = [random.Random(3).randbytes(9) + b"%d" % number for number in range(30_000)]
    engine.apply_edits({1: dict.fromkeys(keys, b"v")})
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(1)] == sorted(keys)


def test_records_larger_than_the_buffer(native: Opener) -> None:
    engine = native()
    large = random.Random(1).randbytes(9 << 20)
    engine.apply([StateChange(1, b"a", b"small"), StateChange(1, b"b", large), StateChange(1, b"c", b"small")])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, b"d", large[::-1])])
    engine.write(engine.freeze(), at(1))
    engine.write(engine.freeze(), at(2))
    engine.compact()
    engine.close()
    again = native(verify=True)
    assert (again.get(1, b"b"), again.get(1, b"d")) == (large, large[::-1])
    assert len(list(native.directory.glob("*.run"))) == 1


def test_a_checkpoint_writes_only_what_changed_and_merges_bound_the_disk(native: Opener) -> None:
    engine = native()
    chosen = random.Random(4)
    keys = [b"key %06d" % number for number in range(20_000)]
    engine.apply([StateChange(1, key, bytes(100)) for key in keys])
    first = engine.write(engine.freeze(), at(0))
    live = sum(len(key) + 100 for key in keys)
    for number in range(1, 60):
        engine.apply([StateChange(1, key, chosen.randbytes(100)) for key in chosen.sample(keys, 1000)])
        info = engine.write(engine.freeze(), at(number))
        assert info.bytes_written < first.bytes_written / 10
        assert len(list(native.directory.glob("*.run"))) <= native.settings.merge_runs_max + 4
        assert sum(path.stat().st_size for path in native.directory.iterdir()) < 1.6 * live
    engine.compact()
    assert sum(path.stat().st_size for path in native.directory.iterdir()) < 1.4 * live
    assert engine.checkpoints()[0].keys <= len(keys) + 1000


def test_the_disk_is_bounded_though_everything_changes_between_checkpoints(native: Opener) -> None:
    engine = native()
    chosen = random.Random(4)
    keys = [b"key %06d" % number for number in range(20_000)]
    for number in range(5):
        values = {key: chosen.randbytes(100) for key in keys}
        engine.apply_edits({1: values})
        engine.write(engine.freeze(), at(number))
        assert [info.position for info in engine.checkpoints()] == [at(number)] * (2 if number else 1)
        assert sum(path.stat().st_size for path in native.directory.iterdir()) < 1.5 * 110 * len(keys)
        engine.close()
        engine = native()
        assert (engine.position, len(engine.checkpoints())) == (at(number), 2 if number else 1)
        assert [engine.get(1, key) for key in keys[::100]] == [values[key] for key in keys[::100]]
    newest = max(native.directory.glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-1])
    engine.close()
    engine = native()
    assert (engine.position, len(engine.damaged)) == (at(4), 1)


def test_a_merge_that_leaves_the_oldest_run_out_keeps_tombstones(native: Opener) -> None:
    native.settings = StateSettings(merge_in_background=False, merge_ratio=1e9, spare_ratio_max=1e9, merge_runs_max=2)
    engine = native()
    engine.apply([StateChange(1, b"%d" % number, bytes(1000)) for number in range(10)])
    engine.write(engine.freeze(), at(0))
    for number in range(1, 9):
        engine.apply([StateChange(1, b"%d" % number, None), StateChange(1, b"new %d" % number, b"x")])
        engine.write(engine.freeze(), at(number))
    runs = engine._stack.base.runs  # type: ignore[attr-defined]
    assert runs[0].header.oldest_id == runs[0].name.id, "the oldest one was never merged"
    assert any(run.footer.tombstones > 1 for run in runs), "others were"
    assert set(content(engine)) == {(1, b"0"), (1, b"9"), *((1, b"new %d" % number) for number in range(1, 9))}


def test_a_state_that_is_restored_while_a_checkpoint_is_written(
    native: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = native()
    assert isinstance(engine, NativeEngine)
    engine.apply([StateChange(1, b"a", b"old")])
    other = open_engine("native", None)
    other.apply([StateChange(1, b"b", b"restored")])
    write = engine._checkpoints.write

    def restore(manifest: CheckpointManifest) -> Checkpoint:
        with other.create_snapshot() as snapshot:
            engine.restore_from_snapshot(snapshot)
        return write(manifest)

    monkeypatch.setattr(engine._checkpoints, "write", restore)
    engine.write(engine.freeze(), at(0))
    monkeypatch.undo()
    assert content(engine) == {(1, b"b"): b"restored"}
    assert native(read_only=True).get(1, b"a") == b"old", "the checkpoint is what it was frozen as"
    engine.write(engine.freeze(), at(1))
    assert content(native(read_only=True)) == {(1, b"b"): b"restored"}


def test_deleted_keys_leave_the_disk(native: Opener) -> None:
    engine = native()
    engine.apply([StateChange(1, b"%d" % number, bytes(100)) for number in range(1000)])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, b"%d" % number, None) for number in range(1000)])
    for number in (1, 2, 3):
        engine.write(engine.freeze(), at(number))
    engine.compact()
    assert list(native.directory.glob("*.run")) == []
    engine.close()
    again = native()
    assert (again.position, content(again)) == (at(3), {})


def test_orphans_and_temporary_files_are_pruned(native: Opener) -> None:
    engine = native()
    engine.apply([StateChange(1, b"a", b"b")])
    engine.write(engine.freeze(), at(0))
    for name in ("run-00000000000000aa.run", ".run-00000000000000ab.run.tmp", ".checkpoint-00000000000000ac.json.tmp"):
        (native.directory / name).write_bytes(b"left by a crash")
    (native.directory / "notes.txt").write_text("not ours")
    engine.write(engine.freeze(), at(1))
    names = sorted(path.name for path in native.directory.iterdir())
    assert names == [
        "checkpoint-0000000000000001.json", "checkpoint-0000000000000002.json", "notes.txt", "run-0000000000000001.run",
    ]  # fmt: skip


def _held() -> tuple[int, int, int]:
    """Open handles, mappings, and layers alive in this process."""
    gc.collect()
    layers = sum(isinstance(thing, Layer) for thing in gc.get_objects())
    return len(os.listdir("/proc/self/fd")), len(Path("/proc/self/maps").read_text().splitlines()), layers


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_nothing_grows_over_a_thousand_cycles() -> None:
    """Open, change, iterate, checkpoint, merge, forget an iterator, close. In /dev/shm: syncs cost nothing there."""
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=shm) as directory:
        path = Path(directory) / "state"
        settings = StateSettings(merge_runs_max=1, merge_ratio=0.1)
        begun: tuple[int, int, int] = (0, 0, 0)
        begun_rss = 0
        for number in range(1000):
            engine = open_engine("native", path, settings=settings)
            engine.apply([StateChange(1, b"%d" % (key % 50), b"%d" % number * 20) for key in range(number, number + 9)])
            forgotten = engine.create_snapshot().iterate(1)
            next(forgotten)
            engine.write(engine.freeze(), at(number))
            assert engine.get(1, b"%d" % (number % 50)) == b"%d" % number * 20
            if number % 3 == 0:
                engine.compact()
            engine.close()
            del forgotten
            if number == 200:
                begun, begun_rss = _held(), _rss()
        held = _held()
        assert held[0] <= begun[0]
        assert held[1] <= begun[1] + 10
        assert held[2] <= begun[2]
        assert _rss() < begun_rss + (16 << 20)
        assert len(list(path.iterdir())) < 8


def test_a_reader_that_opens_while_the_owner_prunes(native: Opener) -> None:
    """The owner removes every file that the reader's first look at the directory showed."""
    engine = native()
    engine.apply([StateChange(1, b"a", b"0")])
    engine.write(engine.freeze(), at(0))

    class Late(RealFiles):
        looks = 0

        def list(self, directory: Path) -> list[str]:
            names = super().list(directory)
            if names and directory == native.directory:
                self.looks += 1
                if self.looks == 2:  # the first one asks which engine wrote it
                    for number in range(1, 4):
                        engine.apply([StateChange(1, b"a", b"%d" % number)])
                        engine.write(engine.freeze(), at(number))
                    engine.compact()
            return names

    late = Late()
    reader = native(read_only=True, files=late)
    assert late.looks > 3
    assert (reader.position, reader.get(1, b"a"), list(reader.damaged)) == (at(3), b"3", [])


def test_an_open_and_a_few_reads_do_without_numba(native: Opener) -> None:
    """Numba takes half a second to import; a process that opens a state and reads a little must not wait for it."""
    engine = native()
    engine.apply([StateChange(1, b"a", b"b")])
    engine.write(engine.freeze(), at(0))
    engine.close()
    program = (
        "import sys; from pathlib import Path\n"
        "from penstock.state.engines.opening import open_engine\n"
        f"engine = open_engine('native', Path({str(native.directory)!r}))\n"
        "assert engine.get(1, b'a') == b'b' and engine.get(1, b'b') is None\n"
        "assert list(engine.create_snapshot().iterate(1)) == [(b'a', b'b')]\n"
        "assert list(engine.verify()) == []\n"
        "sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
