"""Bugs that the explorer found, each kept as the shortest program that shows it. The docstrings say what went wrong."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.files.memory import MemoryFiles
from penstock.log import Log
from penstock.metadata import MemoryMetadata
from penstock.state import BucketState
from tests.crash.state.world import DIRECTORY, KEYS, STATE, TRIMMED_LOG


class _Killed(Exception):
    """The process ends here."""


def _open(files: MemoryFiles, metadata: MemoryMetadata) -> tuple[Log, BucketState]:
    log = Log.open(DIRECTORY, TRIMMED_LOG, files, metadata=metadata)
    return log, BucketState.open(log, STATE)


def _close(log: Log, state: BucketState) -> None:
    """What is closed may be a process that was killed: it must only leave no threads behind."""
    for one in (state, log):
        with contextlib.suppress(PenstockError, OSError):
            one.close()


def _put(state: BucketState, key: int) -> None:
    change = state.begin()
    state.store(KEYS).put(change, key, b"value")
    state.commit(change, b"entry").result()


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_that_was_removed_and_not_synced_does_not_come_back(seed: int) -> None:
    """A process was killed after it had removed a checkpoint, before it made that durable. The next one truncated the log
    below it and trimmed; after a power cut the checkpoint was there again, and nothing told that it was void."""
    files, metadata = MemoryFiles(), MemoryMetadata()
    log, state = _open(files, metadata)
    _put(state, 1)
    kept = log.end()
    state.checkpoint()
    _put(state, 2)
    state.checkpoint()

    def kill_before_the_sync(_number: int, name: str, path: Path) -> None:
        if name == "sync_directory" and path == DIRECTORY / "state":
            raise _Killed

    files.on_operation = kill_before_the_sync
    with contextlib.suppress(_Killed, PenstockError):
        state.truncate(kept)
    files.on_operation = None
    killed, metadata = files.kill(), metadata.copy()
    _close(log, state)
    log, state = _open(killed, metadata)
    assert len(state.checkpoints()) == 1
    state.truncate(kept)
    _put(state, 3)
    log.roll()
    log.trim()
    crashed, metadata = killed.crash(random.Random(seed)), metadata.copy()
    _close(log, state)
    log, state = _open(crashed, metadata)
    assert dict(state.store(KEYS).items()) == {1: b"value", 3: b"value"}
    _close(log, state)
