"""Nobody knows whether a change was made: the log stops, believes neither, and the next owner finds the truth."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable

import pytest

from penstock.clock import ManualClock
from penstock.errors import OutcomeUnknown, PenstockError, StorageFailed
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogSettings
from penstock.metadata import MemoryMetadata
from tests.log.append.test_failures import DIRECTORY, SMALL, Disk, content, open_log

CHANGES: dict[str, Callable[[Log], object]] = {
    "roll": Log.roll,
    "trim": Log.trim,
    "clear": Log.clear,
    "properties": lambda log: log.set_properties({"a": "b"}),
    "terminate": Log.terminate,
    "truncate": lambda log: log.truncate(log.reader().first),
    "pin": lambda log: log.pin("p", log.end()),
    "unpin": lambda log: log.unpin("before"),
    "cursor": lambda log: log.open_cursor("new"),
    "cursor deleted": lambda log: log.delete_cursor("c"),
    "offload": lambda log: log.offload("file:///objects"),
}


def unknown() -> None:
    raise OutcomeUnknown("the sync of a commit failed", hint="start again")


def next_owners(metadata: MemoryMetadata) -> list[MemoryMetadata]:
    """Both things that may be found after a power cut."""
    found = {store._shared.content.version: store for store in (metadata.crashed(random.Random(n)) for n in range(20))}
    assert len(found) == 2
    return list(found.values())


def ledger_files(files: MemoryFiles) -> set[str]:
    return {name for name in files.list(DIRECTORY) if name.startswith("ledger-")}


@pytest.mark.parametrize("how", CHANGES)
def test_after_an_unknown_outcome_the_log_stops_and_either_outcome_can_be_opened(how: str) -> None:
    files, metadata = MemoryFiles(), MemoryMetadata()
    settings = LogSettings(preallocate_bytes=4096, retention_seconds=0, maintenance_interval_seconds=0)
    log = open_log(files, metadata, settings)
    log.open_cursor("c").close()
    for n in range(2):
        log.append(b"%d" % n).result(5)
        log.roll()
    log.append(b"2").result(5)
    if how in ("trim", "offload", "truncate"):
        log.delete_cursor("c")
    if how == "unpin":
        log.pin("before", log.reader().first)
    before = ledger_files(files)
    metadata.after_write = unknown
    with pytest.raises(OutcomeUnknown):
        CHANGES[how](log)
    metadata.after_write = lambda: None
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match=r"nobody knows|sync of a commit failed") as raised:
            log.append(b"never").result(5)
        assert "start again" in raised.value.hint
        with pytest.raises(OutcomeUnknown):
            log.set_properties({"c": "d"})
    assert before <= ledger_files(files), "a file was removed on a belief"
    owners = next_owners(metadata)
    with contextlib.suppress(PenstockError):
        log.close()
    assert before <= ledger_files(files)
    found = []
    for store in owners:
        other = open_log(files.kill(), store, settings)
        found.append(content(other))
        other.close()
    made = {"trim": [b"2"], "clear": [], "truncate": [b"0"]}
    everything = [b"0", b"1", b"2"]
    assert everything in found
    assert all(one in (everything, made.get(how, everything)) for one in found)


def test_a_roll_of_unknown_outcome_loses_nothing_that_is_acknowledged_later() -> None:
    """As a failed sync of SQLite's WAL: what is acknowledged after it must not be in a ledger that the change sealed."""
    files, metadata = MemoryFiles(), MemoryMetadata()
    log = open_log(files, metadata, SMALL)
    acknowledged = [b"%d" % n for n in range(3)]
    for data in acknowledged:
        log.append(data).result(5)
    metadata.after_write = unknown
    for n in range(3, 8):
        with contextlib.suppress(PenstockError):
            log.append(b"%d" % n).result(5)
            acknowledged.append(b"%d" % n)
    assert len(acknowledged) == 3
    for store in next_owners(metadata):
        other = open_log(files.kill(), store, SMALL)
        assert content(other) == acknowledged
        other.close()
    with contextlib.suppress(PenstockError):
        log.close()


def test_a_kill_shows_one_outcome_and_the_next_owner_makes_it_durable() -> None:
    """What the next owner reads after a kill may be in the page cache alone; it acts on it after its own first commit."""
    for seed in range(8):
        files, metadata = MemoryFiles(), MemoryMetadata()
        log = open_log(files, metadata, SMALL)
        for n in range(3):
            log.append(b"%d" % n).result(5)
        metadata.after_write = unknown
        with pytest.raises(OutcomeUnknown):
            log.append(b"never").result(5)
        killed = metadata.killed(random.Random(seed))
        writes: list[int] = []

        def count(killed: MemoryMetadata = killed, writes: list[int] = writes) -> None:
            writes.append(len(killed._shared.others))

        killed.before_write = count
        other = Log.open(DIRECTORY, SMALL, files.kill(), ManualClock(), killed)
        assert writes[0] == 1 and not any(writes[1:])
        assert content(other) == [b"0", b"1", b"2"]
        other.close()


@pytest.mark.parametrize("failing", ["write_at end", "datasync end"])
def test_appends_whose_final_end_cannot_be_written_are_of_unknown_fate(failing: str) -> None:
    """They are not called refused while the next owner may find them."""
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"before").result(5)
    files.failing.update({"datasync .log": 1, "create .log": 99, failing: 99})
    pendings = [log.append(b"of unknown fate %d" % n) for n in range(2)]
    for pending in pendings:
        assert isinstance(pending.exception(5), OutcomeUnknown)
    with pytest.raises(OutcomeUnknown, match="nobody knows whether the last appends"):
        log.append(b"never").result(5)
    killed, then = files.kill(), metadata.copy()
    files.failing.clear()
    with contextlib.suppress(PenstockError):
        log.close()
    other = open_log(killed, then)
    found = content(other)
    other.close()
    assert found[0] == b"before" and b"never" not in found


def test_a_final_end_that_is_written_at_the_second_attempt_refuses_for_good() -> None:
    files, metadata = Disk(), MemoryMetadata()
    log = open_log(files, metadata)
    log.append(b"before").result(5)
    files.failing.update({"datasync .log": 1, "create .log": 99, "datasync end": 1})
    with pytest.raises(StorageFailed) as raised:
        log.append(b"refused").result(5)
    assert not isinstance(raised.value, OutcomeUnknown)
    killed, then = files.kill(), metadata.copy()
    killed._faults.clear()
    other = open_log(killed, then)
    assert content(other) == [b"before"]
    other.close()
    files.failing.clear()
    log.append(b"after").result(5)
    assert content(log) == [b"before", b"after"]
    log.close()
