"""What the system refuses is told from damage: nothing counts as lost because it cannot be read right now."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import StorageFailed, Unavailable
from penstock.log import Log
from penstock.state import BucketState, StateSettings
from penstock.state.engines.refusals import refusal
from tests.state.stores import SMALL, content, put

_ROOM = 64  # more than any test here needs


@contextlib.contextmanager
def _descriptors(spare: int) -> Iterator[None]:
    """The process can open that many more files, however many it has open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + _ROOM, before[0]), before[1]))
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(spare):
            os.close(held.pop())
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("engine", ["native", "rocksdb"])
def test_a_process_without_free_file_descriptors_loses_no_state(tmp_path: Path, engine: str) -> None:
    settings = StateSettings(engine=engine, checkpoint_at_roll=False, scrub_interval_seconds=None)
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, settings)
        for n in range(30):
            put(state, n, n)
            if n in (10, 20):
                state.checkpoint()
        log.trim()
        expected = content(state)
        kept = [info.position for info in state.checkpoints()]
    refused = opened = 0
    with Log.open(tmp_path / "log", SMALL) as log:
        for spare in range(12):
            try:
                with _descriptors(spare):
                    state = BucketState.open(log, settings)
            except (Unavailable, StorageFailed) as error:
                assert "Too many open files" in str(error)
                refused += 1
            else:
                opened += 1
                assert state.recovered_by == "checkpoint"
                assert content(state) == expected
                assert [info.position for info in state.checkpoints()] == kept
                state.close()
    assert refused
    assert opened


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EMFILE, "Too many open files"), Unavailable),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), Unavailable),
        (MemoryError(), Unavailable),
        (OSError("Too many open files (os error 24)"), Unavailable),
        (Exception("IO error: While open a file: /x/000008.sst: Too many open files in system"), Unavailable),
        (PermissionError(errno.EACCES, "Permission denied"), StorageFailed),
        (Exception("IO error: While open a file: /x/CURRENT: Permission denied"), StorageFailed),
        (OSError(errno.EIO, "Input/output error"), type(None)),
        (Exception("Corruption: block checksum mismatch"), type(None)),
        (Exception("IO error: No such file or directory: /x/000008.sst"), type(None)),
    ],
)
def test_refusals_are_told_from_damage(error: Exception, kind: type) -> None:
    assert type(refusal(Path("/x"), error)) is kind
