"""The bytes of checkpoints as other versions will read them.

The files under tests/golden/checkpoint-1 are never changed: a format that changes gets a new version and a new
directory.
"""

from __future__ import annotations

from pathlib import Path

from penstock.clock import ManualClock
from penstock.files.memory import MemoryFiles
from penstock.log import Position, StateChange
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import DIRECTORY

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
