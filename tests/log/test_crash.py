"""Cuts the power at every file operation of a short random program, and looks at what a reopen finds.

What must hold: every acknowledged entry and ack is there; what is there is a prefix of what was submitted, without a
hole; state is that of the last entry that is there; a second crash during recovery changes nothing of it.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.files.memory import MemoryFiles, PowerCut
from penstock.log import Cursor, Log, LogReader, LogSettings, Position
from penstock.metadata import MemoryMetadata
from penstock.state import BucketState, StateDescriptor
from penstock.state.types import codecs

DIRECTORY = Path("/s/log")
CURSORS = Path("/s/cursors")
SETTINGS = LogSettings(ledger_entries_max=4, preallocate_bytes=4096)
COUNTER: StateDescriptor[str, int] = StateDescriptor("counter", "test", codecs.text, codecs.u64)


@dataclass
class Run:
    """What a program had sent, and what of it was acknowledged, before the power went."""

    files: MemoryFiles
    metadata: MemoryMetadata
    submitted: list[bytes] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)  # acknowledged
    acks_sent: set[Position] = field(default_factory=set)
    acks: set[Position] = field(default_factory=set)  # acknowledged
    finished: bool = False


def power(run: Run) -> None:
    if run.files.power_is_off:
        raise PowerCut("the power is off")


def program(run: Run, seed: int) -> None:
    """Appends, acks, rolls and reopens until it ends or the power goes. The same seed does the same operations."""
    rng = random.Random(seed)
    run.metadata.before_write = lambda: power(run)
    with contextlib.suppress(PowerCut):
        for _ in range(3):
            session(run, rng)
        run.finished = True


def session(run: Run, rng: random.Random) -> None:
    with contextlib.ExitStack() as stack:

        def close(target: Log | Cursor | LogReader) -> None:
            with contextlib.suppress(PowerCut):
                target.close()
            power(run)

        log = Log.open(DIRECTORY, SETTINGS, run.files, ManualClock(), run.metadata)
        stack.callback(close, log)
        state = BucketState.open(log)
        store = state.store(COUNTER)
        reader = LogReader.open(DIRECTORY, run.files, run.metadata)
        stack.callback(close, reader)
        cursor = Cursor.open(reader, CURSORS, "c", files=run.files)
        stack.callback(close, cursor)
        for _ in range(rng.randrange(3, 7)):
            action = rng.random()
            if action < 0.65 or not run.positions:
                data = b"%d " % len(run.submitted) * rng.choice((1, 10, 700))
                change = state.begin()
                store.put(change, "n", len(run.submitted))
                run.submitted.append(data)
                run.positions.append(state.commit(change, data).result())
            else:
                position = rng.choice(run.positions)
                run.acks_sent.add(position)
                cursor.ack(position, position).result()
                run.acks.add(position)


def check(run: Run, files: MemoryFiles) -> None:
    metadata = run.metadata.copy()
    log = Log.open(DIRECTORY, SETTINGS, files, ManualClock(), metadata)
    reader = LogReader.open(DIRECTORY, files, metadata)
    entries = list(reader.read(reader.first, reader.end()))
    found = [bytes(entry.data) for entry in entries]
    assert found == run.submitted[: len(found)], "what is there is not a prefix of what was submitted"
    assert len(found) >= len(run.positions), "an acknowledged entry is lost"
    assert [entry.position for entry in entries][: len(run.positions)] == run.positions
    state = BucketState.open(log)
    assert state.store(COUNTER).get("n") == (len(found) - 1 if found else None)
    cursor = Cursor.open(reader, CURSORS, "c", files=files)
    for entry in entries:
        if entry.position in run.acks:
            assert cursor.is_acked(entry.position), f"the ack of {entry.position} is lost"
        elif entry.position not in run.acks_sent:
            assert not cursor.is_acked(entry.position), f"{entry.position} was never acked"
    acked = sum(cursor.is_acked(entry.position) for entry in entries)
    assert cursor.backlog() == len(entries) - acked
    new = log.append(b"after").result()
    assert not run.positions or new > run.positions[-1]
    assert bytes(next(reader.read(new, new)).data) == b"after"
    cursor.close()
    reader.close()
    log.close()


@pytest.mark.parametrize("seed", range(3))
def test_power_cut_at_every_operation(seed: int) -> None:
    whole = Run(MemoryFiles(), MemoryMetadata())
    program(whole, seed)
    assert whole.finished
    operations = whole.files.operations
    assert operations > 60
    stopped = 0
    for operation in range(1, operations + 1):
        run = Run(MemoryFiles(), MemoryMetadata())
        run.files.cut_power_at(operation)
        program(run, seed)
        stopped += not run.finished
        for fate in range(2):
            check(run, run.files.crash(random.Random(f"{seed} {operation} {fate}")))
        check(run, run.files.kill())
    # The state makes its checkpoints on a thread of its own: a run may have a few operations fewer than the first one.
    assert stopped > 0.9 * operations


def test_power_cut_during_recovery() -> None:
    """The power goes at each operation of the second owner, as it did for the first; the third still finds everything."""
    seed = 7
    whole = Run(MemoryFiles(), MemoryMetadata())
    program(whole, seed)
    rng = random.Random(seed)
    for _ in range(12):
        run = Run(MemoryFiles(), MemoryMetadata())
        run.files.cut_power_at(rng.randrange(20, whole.files.operations))
        program(run, seed)
        snapshot, metadata = run.files.crash(rng), run.metadata.copy()
        for operation in range(1, 16):
            second = Run(snapshot.kill(), metadata.copy(), run.submitted, run.positions, run.acks_sent, run.acks)
            second.metadata.before_write = lambda second=second: power(second)  # type: ignore[misc]
            second.files.cut_power_at(snapshot.operations + operation)
            with contextlib.suppress(PowerCut):
                Log.open(DIRECTORY, SETTINGS, second.files, ManualClock(), second.metadata).close()
            check(second, second.files.crash(rng))
