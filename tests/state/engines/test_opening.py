"""Which engine is opened: by name, never over the checkpoints of the other one, without a directory in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import BadInput, NotSupported
from penstock.log import Position
from penstock.state.engines.opening import open_engine
from tests.state.engines.opener import Opener, checkpoint, content, put


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"'leveldb'.*native, rocksdb"):
        open_engine("leveldb", tmp_path)


def test_the_state_of_another_engine_is_refused_by_name(opened: Opener) -> None:
    engine = opened()
    put(engine, a="1")
    checkpoint(engine, 0)
    engine.close()
    other = "rocksdb" if opened.name == "native" else "native"
    with pytest.raises(BadInput, match=f"written by the engine '{opened.name}', not by '{other}'"):
        open_engine(other, opened.directory)


def test_without_a_directory_there_are_no_checkpoints() -> None:
    engine = open_engine("native", None)
    put(engine, a="1")
    with pytest.raises(NotSupported, match="without a directory"):
        checkpoint(engine, 0)
    assert engine.checkpoints() == list(engine.verify()) == []
    put(engine, a=None)
    assert engine._stack.layers[0].tables == {1: {}}, "a tombstone over nothing is not kept"  # type: ignore[attr-defined]
    put(engine, a="1")
    assert engine.drop_after(Position(0, 0)) is None
    assert content(engine) == {}
