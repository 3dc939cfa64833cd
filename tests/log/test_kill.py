"""A real writer process is killed with -9, again and again, while another process reads along."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

from penstock.log import Cursor, Log, LogReader, Position
from penstock.state import BucketState, StateReader
from tests.log import writer_process
from tests.log.writer_process import COUNTER, payload
from tests.support.budget import KILL_ROUNDS


def start(directory: Path) -> subprocess.Popen[str]:
    command = [sys.executable, writer_process.__file__, str(directory)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen[str], lines: int) -> list[tuple[str, int, Position]]:
    """What the process said before it died, `lines` lines after its start or a little more."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.kill()
    said += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    facts = [line.split() for line in said if line.endswith("\n")]
    assert len(facts) >= lines, "the writer died by itself"
    return [(kind, int(number), Position.parse(position)) for kind, number, position in facts]


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    rng = random.Random(11)
    entries: dict[Position, int] = {}
    acks: set[Position] = set()
    for _ in range(KILL_ROUNDS):
        for kind, number, position in kill_after(start(tmp_path), rng.randrange(5, 250)):
            if kind == "entry":
                entries[position] = number
            else:
                acks.add(position)
        log = Log.open(tmp_path / "log", writer_process.SETTINGS)
        reader = log.reader()
        found = list(reader.read(reader.first, log.end()))
        numbers = [int(bytes(entry.data).split(b":", 1)[0]) for entry in found]
        assert numbers == list(range(1, len(numbers) + 1)), "a hole or a double"
        assert all(bytes(entry.data) == payload(number) for entry, number in zip(found, numbers, strict=True))
        where = {entry.position: number for entry, number in zip(found, numbers, strict=True)}
        assert entries.items() <= where.items(), "an acknowledged entry is lost or moved"
        assert BucketState.open(log).store(COUNTER).get("n") == numbers[-1]
        cursor = Cursor.open(reader, tmp_path / "cursors", "c")
        assert all(cursor.is_acked(position) for position in acks), "a durable ack is lost"
        assert not any(cursor.is_acked(p) for p, number in where.items() if number % 3 == 0), "an ack of nobody"
        assert cursor.backlog() == sum(not cursor.is_acked(position) for position in where)
        cursor.close()
        log.close()


def test_a_reader_in_another_process_follows_and_sees_only_what_is_whole(tmp_path: Path) -> None:
    Log.open(tmp_path / "log", writer_process.SETTINGS).close()
    reader = LogReader.open(tmp_path / "log")
    sizes: list[int] = []
    state = StateReader.open(reader, lambda _position, size, _changes: sizes.append(size), at="earliest")
    process = start(tmp_path)
    assert process.stdout is not None
    seen = 0
    next_position = reader.first
    ledgers = set()
    for _ in range(40):
        for _ in range(10):
            process.stdout.readline()
        end = reader.end()
        for entry in reader.read(next_position, end):
            seen += 1
            ledgers.add(entry.position.ledger_id)
            assert bytes(entry.data) == payload(seen)
        next_position = reader.next(end)
        assert state.advance(end) == end
        assert state.store(COUNTER).get("n") == seen == len(sizes)
    kill_after(process, 1)
    assert len(ledgers) > 1, "it never rolled while it was read"
    assert sizes == [len(payload(number)) for number in range(1, seen + 1)]
    reader.close()
