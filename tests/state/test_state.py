"""Bucket state through its public interface: atomic with its entry, replayed, followed from another handle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BadInput, Corruption, NotSupported
from penstock.log import Log, LogReader, LogSettings, Position, RecordLog, StateChange
from penstock.state import BucketState, StateDescriptor, StateReader
from penstock.state.types import codecs

SOURCE: StateDescriptor[str, Any] = StateDescriptor("source.position", "capture", codecs.text, codecs.json)
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
    position = pending.result(5)
    (entry,) = log.read(position, position)
    assert bytes(entry.data) == b"data4"
    assert len(entry.changes) == 2
    change = state.begin()
    history.delete(change, ("db", "t1", 1))
    state.commit(change).result(5)
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


def test_a_follower_learns_sizes_and_state_frame_by_frame(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log", LogSettings(ledger_entries_max=3))
    state = BucketState.open(log)
    source = state.store(SOURCE)
    reader = LogReader.open(tmp_path / "log")
    seen: list[tuple[Position, int, Any]] = []
    follower = StateReader.open(reader)
    follower.on_frame = lambda position, size, _: seen.append((position, size, follower.store(SOURCE).get("s")))
    assert follower.advance() == follower.position
    positions = []
    for n in range(7):
        change = state.begin()
        source.put(change, "s", n)
        positions.append(state.commit(change, b"x" * n).result(5))
    assert follower.advance(positions[3]) == positions[3]
    assert follower.store(SOURCE).get("s") == 3
    assert follower.advance(positions[1]) == positions[3]  # never back
    assert follower.advance() == positions[6]
    assert seen == [(position, n, n) for n, position in enumerate(positions)]
    log.close()
    reopened = Log.open(tmp_path / "log")
    last = reopened.append(b"data alone").result(5)
    assert follower.advance() == last
    reopened.close()
    reader.close()


def test_state_over_a_record_log_is_compacted(tmp_path: Path) -> None:
    records = RecordLog.open(tmp_path, "progress")
    state = BucketState.open(records)
    store = state.store(SOURCE)
    for n in range(15_000):
        change = state.begin()
        store.put(change, f"k{n % 7}", n)
        pending = state.commit(change)
    pending.result(10)
    records.close()
    (generation,) = tmp_path.glob("*.rlog")
    assert generation.stat().st_size < 1_500_000 < 15_000 * 120
    again = RecordLog.open(tmp_path, "progress")
    assert dict(BucketState.open(again).store(SOURCE).items()) == {f"k{n % 7}": n for n in range(14_993, 15_000)}
    again.close()


def test_other_codecs_and_unknown_schemas_are_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    state = BucketState.open(log)
    change = state.begin()
    state.store(SOURCE).put(change, "s", 1)
    state.commit(change).result(5)
    with pytest.raises(NotSupported, match="was written as text → json"):
        state.store(StateDescriptor("source.position", "capture", codecs.u64, codecs.json))
    with pytest.raises(NotSupported, match="no migration from schema 1"):
        state.store(StateDescriptor("source.position", "capture", codecs.text, codecs.json, schema_version=2))
    log.close()


def test_changes_of_a_namespace_that_nobody_registered_are_refused(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    log.append(b"", [StateChange(9, b"\x01k", b"v")]).result(5)
    with pytest.raises(Corruption, match="namespace 9"):
        BucketState.open(log)
    log.close()


def test_two_new_stores_in_one_change_get_two_namespaces(tmp_path: Path) -> None:
    log = Log.open(tmp_path / "log")
    state = BucketState.open(log)
    change = state.begin()
    state.store(SOURCE).put(change, "k", 1)
    state.store(HISTORY).put(change, ("a", "b", 1), 2)
    position = state.commit(change).result(5)
    (entry,) = log.read(position, position)
    assert [c.namespace for c in entry.changes] == [0, 0, 1, 2]
    log.close()


KEYS = st.tuples(st.text(), st.binary(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, (1 << 64) - 1))
CODEC = codecs.tuple_of(codecs.text, codecs.raw, codecs.i64, codecs.u64)


@given(a=KEYS, b=KEYS)
def test_encoded_keys_keep_their_order(a: tuple[Any, ...], b: tuple[Any, ...]) -> None:
    assert CODEC.decode(CODEC.encode(a)) == a
    plain_a, plain_b = (a[0].encode(), *a[1:]), (b[0].encode(), *b[1:])
    assert (CODEC.encode(a) < CODEC.encode(b)) == (plain_a < plain_b)
    assert CODEC.encode(a).startswith(CODEC.prefix(a[:2]))
    assert a[:2] == b[:2] or not CODEC.encode(b).startswith(CODEC.prefix(a[:2]))


def test_codecs_refuse_what_does_not_fit() -> None:
    with pytest.raises(BadInput):
        codecs.u64.encode(-1)
    with pytest.raises(BadInput):
        codecs.i64.encode(1 << 63)
    with pytest.raises(Corruption):
        codecs.u64.decode(b"short")
    with pytest.raises(BadInput):
        CODEC.encode(("a", b"b"))


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
    pending.result(10)
    log.close()
    assert len(read) == 200
