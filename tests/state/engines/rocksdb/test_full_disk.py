"""A disk that fails RocksDB once: it takes nothing more in that database, and its close fails, too."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from penstock.errors import StorageFailed
from penstock.log import StateChange
from penstock.state.engines.opening import open_engine
from tests.state.engines.native.memory import at

_BYTES_MAX = 1 << 20


@contextmanager
def _small_files() -> Iterator[None]:
    """Writes beyond that size fail in this process, as those to a full disk do."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_BYTES_MAX, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("first", [True, False])
def test_checkpoints_go_on_once_there_is_space(*, first: bool, tmp_path: Path) -> None:
    engine = open_engine("rocksdb", tmp_path)
    model = {}
    if not first:
        engine.apply([StateChange(1, b"before", b"value")])
        engine.write(engine.freeze(), at(1))
        model[b"before"] = b"value"
    large = Random(1).randbytes(3 * _BYTES_MAX)
    engine.apply([StateChange(1, b"large", large)])
    model[b"large"] = large
    with _small_files():
        for _ in range(2):
            with pytest.raises(StorageFailed, match="earlier checkpoints are in force"):
                engine.write(engine.freeze(), at(2))
    engine.write(engine.freeze(), at(2))
    engine.close()
    again = open_engine("rocksdb", tmp_path, verify=True)
    with again.create_snapshot() as snapshot:
        assert dict(snapshot.iterate(1)) == model
    assert again.position == at(2)
    again.close()
    assert not list(tmp_path.glob("rocksdb/live-*"))


def test_an_engine_is_closed_on_a_full_disk(tmp_path: Path) -> None:
    engine = open_engine("rocksdb", tmp_path)
    engine.apply([StateChange(1, b"key", b"value")])
    engine.write(engine.freeze(), at(1))
    engine.apply([StateChange(1, b"large", Random(1).randbytes(3 * _BYTES_MAX))])
    with _small_files():
        with pytest.raises(StorageFailed):
            engine.write(engine.freeze(), at(2))
        engine.close()
    again = open_engine("rocksdb", tmp_path)
    assert (again.get(1, b"key"), again.get(1, b"large")) == (b"value", None)
    again.close()
