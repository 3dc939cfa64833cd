"""Pages that the disk cannot give: an error with file and offset, never a signal; and a cache that keeps its limit."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Corruption
from penstock.files import RealFiles
from penstock.log import Log, StateChange
from penstock.state import BucketState, StateSettings
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.opening import open_engine
from tests.state.engines.native.memory import at
from tests.state.stores import KEEPING
from tests.support.waiting import LIMIT_SECONDS


class BadSectors(RealFiles):
    """The real file system, with runs that cannot be read in some places."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: tuple[int, int] | None = None  # from, to (excluded)

    def open(self, path: Path, *, writable: bool = False) -> Any:
        file = super().open(path, writable=writable)
        if path.suffix != ".run":
            return file
        read_at = file.read_at

        def read(offset: int, size: int) -> bytes:
            if self.bad is not None and offset < self.bad[1] and offset + size > self.bad[0]:
                raise OSError(errno.EIO, "Input/output error")
            return read_at(offset, size)

        file.read_at = read  # type: ignore[method-assign]
        return file


def with_keys(directory: Path, files: RealFiles, count: int = 2000) -> StateEngine:
    engine = open_engine("native", directory, files=files, settings=StateSettings(merge_in_background=False))
    engine.apply([StateChange(1, b"%06d" % n, b"v" * 100) for n in range(count)])
    engine.write(engine.freeze(), at(0))
    return engine


def test_a_sector_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    files = BadSectors()
    engine = with_keys(tmp_path, files)
    files.bad = (0, 1 << 30)
    with pytest.raises(Corruption, match=r"run-0000000000000001.run: the page at .* cannot be read"):
        engine.get(1, b"001000")
    with engine.create_snapshot() as snapshot, pytest.raises(Corruption, match=r"run-0000000000000001"):
        list(snapshot.iterate(1))
    assert list(engine.verify())
    files.bad = None
    assert engine.get(1, b"001000") == b"v" * 100, "what failed once is read again"
    assert not list(engine.verify())
    engine.close()


def test_a_bad_sector_is_healed_from_the_log(tmp_path: Path) -> None:
    files = BadSectors()
    with Log.open(tmp_path / "log", KEEPING, files) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False))
        raw = state.raw_store("a", "b")
        raw.write({b"%06d" % n: b"v" * 100 for n in range(2000)}).result(LIMIT_SECONDS)
        state.checkpoint()
        files.bad = (8192, 1 << 30)
        assert raw.get(b"001999") == b"v" * 100
        assert sum(1 for _ in raw.iterate()) == 2000


def test_a_run_cut_under_its_reader_does_not_end_the_process(tmp_path: Path) -> None:
    """A file under a memory mapping would: its pages are gone, and the kernel sends SIGBUS."""
    program = f"""
import os; from pathlib import Path
from penstock.log import Log
from penstock.state import BucketState
with Log.open(Path({str(tmp_path / "log")!r})) as log:
    raw = BucketState.open(log).raw_store("a", "b")
    raw.write({{b"%06d" % n: b"v" * 100 for n in range(2000)}}).result()
    raw.holder.checkpoint()
    (run,) = Path({str(tmp_path / "log" / "state")!r}).glob("run-*")
    os.truncate(run, 8192)
    assert raw.get(b"001999") == b"v" * 100
    assert sum(1 for _ in raw.iterate()) == 2000
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=LIMIT_SECONDS)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_cache_keeps_its_limit(tmp_path: Path, compiled: bool) -> None:
    if compiled:
        import penstock.state.engines.key_kernels  # noqa: F401 (once it is loaded, lookups are compiled)
    with_keys(tmp_path, RealFiles()).close()
    limit = 64 << 10
    engine = open_engine("native", tmp_path, settings=StateSettings(cache_bytes=limit))
    base = engine._stack.base  # type: ignore[attr-defined]
    largest = 0
    for n in range(2000):
        assert engine.get(1, b"%06d" % (n * 37 % 2000)) == b"v" * 100
        largest = max(largest, base.runs[0].cache.bytes)
    assert limit < largest <= limit + 4 * 4096
    engine.close()
