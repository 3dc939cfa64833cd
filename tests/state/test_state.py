"""Bucket state through its public interface: atomic with its entry, replayed, refused where it does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Corruption, NotSupported
from penstock.log import Log, LogSettings, StateChange
from penstock.state import BucketState, StateDescriptor
from penstock.state.types import codecs
from tests.state.stores import SOURCE
from tests.support.waiting import LIMIT_SECONDS

HISTORY: StateDescriptor[tuple[Any, ...], Any] = StateDescriptor(
    "schema.history", "capture", codecs.tuple_of(codecs.text, codecs.text, codecs.u64), codecs.json
)


def test_data_and_changes_are_one_entry(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(ledger_entries_max=2))
    state = BucketState.open(log)
    source, history = state.store(SOURCE), state.store(HISTORY)
    assert source.get("s") is None
    for n in range(5):
        change = state.begin()
        source.put(change, "s", {"pos": n})
        history.put(change, ("db", f"t{n % 2}", n), {"v": n})
        assert source.get("s") == ({"pos": n - 1} if n else None)  # nothing is visible before the commit
        pending = state.commit(change, [b"data", b"%d" % n])
        assert source.get("s") == {"pos": n}  # and all of it right after
    position = pending.result(LIMIT_SECONDS)
    (entry,) = log.read(position, position)
    assert bytes(entry.data) == b"data4"
    assert len(entry.changes) == 2
    change = state.begin()
    history.delete(change, ("db", "t1", 1))
    state.commit(change).result(LIMIT_SECONDS)
    log.close()

    again = Log.open(tmp_path / "log")
    replayed = BucketState.open(again)
    assert replayed.store(SOURCE).get("s") == {"pos": 4}
    assert [k for k, _ in replayed.store(HISTORY).items()] == [
        ("db", "t0", 0),
        ("db", "t0", 2),
        ("db", "t0", 4),
        ("db", "t1", 3),
    ]
    assert list(replayed.store(HISTORY).prefix(("db", "t1"))) == [(("db", "t1", 3), {"v": 3})]
    assert list(replayed.store(HISTORY).prefix(("d",))) == []
    again.close()


def test_other_codecs_and_unknown_schemas_are_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    state = BucketState.open(log)
    change = state.begin()
    state.store(SOURCE).put(change, "s", 1)
    state.commit(change).result(LIMIT_SECONDS)
    with pytest.raises(NotSupported, match="was written as text → json"):
        state.store(StateDescriptor("source.position", "capture", codecs.u64, codecs.json))
    with pytest.raises(NotSupported, match="no migration from schema 1"):
        state.store(StateDescriptor("source.position", "capture", codecs.text, codecs.json, schema_version=2))
    log.close()


def test_changes_of_a_namespace_that_nobody_registered_are_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    log.append(b"", [StateChange(9, b"\x01k", b"v")]).result(LIMIT_SECONDS)
    with pytest.raises(Corruption, match="namespace 9"):
        BucketState.open(log)
    log.close()


def test_two_new_stores_in_one_change_get_two_namespaces(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    state = BucketState.open(log)
    change = state.begin()
    state.store(SOURCE).put(change, "k", 1)
    state.store(HISTORY).put(change, ("a", "b", 1), 2)
    position = state.commit(change).result(LIMIT_SECONDS)
    (entry,) = log.read(position, position)
    assert [c.namespace for c in entry.changes] == [0, 0, 1, 2]
    log.close()


def test_a_callback_may_read_the_state_while_commits_wait_for_room(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(waiting_bytes_max=1000))
    state = BucketState.open(log)
    source = state.store(SOURCE)
    read: list[Any] = []
    for n in range(200):
        change = state.begin()
        source.put(change, "s", n)
        pending = state.commit(change, bytes(900))
        pending.add_done_callback(lambda _: read.append(source.get("s")))
    pending.result(LIMIT_SECONDS)
    log.close()
    assert len(read) == 200
