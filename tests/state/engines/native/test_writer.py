"""Runs with keys that are easily missorted, and with records larger than the writer's buffer."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import Corruption, StorageFailed
from penstock.files.memory import MemoryFiles
from penstock.log import StateChange
from penstock.state.engines.layered import FrozenLayers
from penstock.state.engines.native import parity, writer
from penstock.state.engines.native.format import PAGE_BYTES, BadRun, Header
from penstock.state.engines.native.run import RunName, SortedRun
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import DIRECTORY, at, opened
from tests.state.engines.opener import Opener


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


class LyingDisk(MemoryFiles):
    """Says that it wrote a run, and wrote something else: zeros in place of one of the appends."""

    lies_at: int | None = None  # the number of that append

    def create(self, path: Path) -> Any:
        file = super().create(path)
        if self.lies_at is None or ".run" not in path.name:
            return file
        append, appends = file.append, iter(range(1 << 20))

        def lie(buffers: Any) -> None:
            if next(appends) == self.lies_at:
                buffers = [bytes(len(buffer)) for buffer in buffers]
            append(buffers)

        file.append = lie  # type: ignore[method-assign]
        return file


def write_on_a_lying_disk(lies_at: int) -> LyingDisk:
    files = LyingDisk()
    engine = opened(files, settings=StateSettings(merge_in_background=False, merge_ratio=1e9))
    engine.apply([StateChange(1, b"%04d" % n, b"old") for n in range(100)])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, b"%04d" % n, b"new") for n in range(100)])
    files.lies_at = lies_at
    try:
        engine.write(engine.freeze(), at(1))
    finally:
        files.lies_at = None
        assert engine.get(1, b"0007") == b"new", "what could not be written stays readable"
        engine.close()
    return files


@pytest.mark.parametrize("lies_at", [0, 1])
def test_a_run_that_the_disk_did_not_keep_is_never_named(lies_at: int) -> None:
    with pytest.raises(StorageFailed, match="the disk does not hold at"):
        write_on_a_lying_disk(lies_at)


@pytest.mark.parametrize("lies_at", [0, 1], ids=["data", "end"])
def test_only_the_read_back_finds_that_the_disk_did_not_keep_a_run(
    lies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug to the test before: with the comparison of that part left out, a run is written and named, and
    nothing of it can be had."""
    files = LyingDisk()
    engine = opened(files)
    engine.apply([StateChange(1, b"%04d" % n, b"new") for n in range(100)])
    frozen = engine.freeze()
    assert isinstance(frozen, FrozenLayers)
    files.make_directory(DIRECTORY)
    files.lies_at = lies_at

    def write() -> RunName:
        name = writer.write_layers(files, DIRECTORY, Header(1, at(1), 0, 1), frozen.layers, bottom=True)
        assert name is not None
        return name

    with pytest.raises(StorageFailed, match="the disk does not hold at"):
        write()
    if lies_at == 0:
        monkeypatch.setattr(parity, "_compared", _read_alone)
    else:
        monkeypatch.setattr(writer, "compare_end", lambda *_: None)
    name = write()
    with pytest.raises((BadRun, Corruption)):
        SortedRun(files, DIRECTORY, name).check_all()


def _read_alone(file: Any, layout: Any, page: int, count: int, _checksums: Any) -> Any:
    start = page * PAGE_BYTES
    return np.frombuffer(file.read_at(start, min(count * PAGE_BYTES, layout.data_bytes - start)), np.uint8)
