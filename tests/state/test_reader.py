"""The state from another handle: at a position, on a trimmed log, and frame by frame."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from penstock.errors import BadInput
from penstock.log import Log, LogReader, LogSettings, Position
from penstock.state import (
    BucketState,
    RecoveryProgress,
    StateLost,
    StateReader,
    StateSettings,
)
from tests.state.stores import KEEPING, ORDERS, SMALL, SOURCE, checkpointed, content, put
from tests.support.waiting import LIMIT_SECONDS


def test_the_state_at_a_position_includes_the_entry_there(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", KEEPING) as log:
        state = BucketState.open(log)
        positions = []
        for n in range(12):
            positions.append(put(state, n, n))
            if n in (4, 8):
                state.checkpoint()
        for n, position in enumerate(positions):
            past = state.recover(position)
            assert content(past) == {k: k for k in range(n + 1)}, position
            past.close()
            outside = StateReader.open(LogReader.open(tmp_path / "log"), at=position)
            assert content(outside) == {k: k for k in range(n + 1)}
            assert outside.advance(positions[-1]) == positions[-1]
            assert content(outside) == content(state)
        with pytest.raises(BadInput, match="beyond"):
            state.recover(Position(99, 0))


def test_a_follower_opens_on_a_trimmed_log(tmp_path: Path) -> None:
    expected = checkpointed(tmp_path, SMALL)
    reader = LogReader.open(tmp_path / "log")
    follower = StateReader.open(reader)
    assert content(follower) == expected
    earliest = StateReader.open(reader, at="earliest")
    assert earliest.position < follower.position
    earliest.advance()
    assert content(earliest) == expected
    with pytest.raises(StateLost):
        StateReader.open(reader, at=Position(1, 0))


@pytest.mark.parametrize("applied", [0, 2, 3])
def test_a_follower_whose_place_was_trimmed_misses_nothing(applied: int, tmp_path: Path) -> None:
    """It is before the first entry, inside a ledger, or at its end, and sleeps while that ledger goes."""
    log = Log.open(tmp_path / "log", LogSettings(ledger_entries_max=3, retention_bytes=0, retention_seconds=0))
    state = BucketState.open(log)
    reader = LogReader.open(tmp_path / "log")
    for n in range(applied):
        put(state, n, n)
    follower = StateReader.open(reader)
    told = StateReader.open(log.reader(), lambda *_: None)
    for n in range(applied, 20):
        put(state, n, n)
    state.checkpoint()
    log.trim()
    assert not log.reader().complete
    follower.advance()
    assert content(follower) == {n: n for n in range(20)}
    put(state, 20, 20)
    assert follower.advance() == log.end()
    assert content(follower) == {n: n for n in range(21)}
    with pytest.raises(StateLost, match="were trimmed"):
        told.advance()
    log.close()


def test_a_follower_that_had_read_all_that_was_trimmed_is_told_of_the_next_frame(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log)
        told: list[Position] = []
        for n in range(4):
            put(state, n, n)
        follower = StateReader.open(log.reader(), lambda position, *_: told.append(position))
        following = put(state, 4, 4)
        state.checkpoint()
        put(state, 5, 5)
        state.checkpoint()
        assert log.trim() == [1]
        follower.advance(following)
        assert told == [following]
        assert content(follower) == {n: n for n in range(5)}


@pytest.mark.parametrize("at", [None, "earliest"])
@pytest.mark.parametrize("checkpoints", [2, 3])
def test_a_follower_opens_while_the_owner_trims_what_it_wants(
    at: Literal["earliest"] | None, checkpoints: int, tmp_path: Path
) -> None:
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False))
        for n in range(20):
            put(state, n, n)
            if n in (1, 5):
                state.checkpoint()
        owner_works = True

        def progress(now: RecoveryProgress) -> None:
            nonlocal owner_works
            if owner_works and now.phase == ("checkpoint" if at else "replay"):
                owner_works = False
                for n in range(checkpoints):
                    put(state, 20 + n, n)
                    state.checkpoint()
                assert log.trim()

        follower = StateReader.open(LogReader.open(tmp_path / "log"), at=at, progress=progress)
        assert not owner_works
        follower.advance()
        assert content(follower) == content(state)


@pytest.mark.parametrize("is_told", [False, True])
def test_frames_are_trimmed_while_a_follower_applies_them(
    *, is_told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False))
        put(state, 0, 0)
        reader = LogReader.open(tmp_path / "log")
        told: list[Position] = []
        follower = StateReader.open(reader, (lambda position, *_: told.append(position)) if is_told else None)
        positions = [put(state, n, n) for n in range(1, 20)]
        scan = reader.scan_encoded

        def scan_beside_a_trim(start: Position, end: Position) -> Iterator[Any]:
            frames = scan(start, end)
            yield next(frames)
            for n in range(2):
                put(state, 20 + n, n)
                state.checkpoint()
            assert log.trim()
            yield from frames

        monkeypatch.setattr(reader, "scan_encoded", scan_beside_a_trim)
        if is_told:
            with pytest.raises(StateLost, match="to be told of each"):
                follower.advance()
            assert told == positions[: len(told)] != []
        else:
            assert follower.advance() == log.end()
            assert content(follower) == content(state)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_follower_from_before_the_first_checkpoint_goes_on_with_the_engine_that_wrote_it(
    *, trimmed: bool, tmp_path: Path
) -> None:
    """It has to read a checkpoint where the frames that it wants were trimmed, or where the log was taken back."""
    with Log.open(tmp_path / "log", SMALL) as log:
        state = BucketState.open(log, StateSettings(engine="rocksdb", checkpoint_at_roll=False))
        kept = put(state, 0, 0)
        follower = StateReader.open(LogReader.open(tmp_path / "log"))
        for n in range(1, 20):
            put(state, n, n)
        if trimmed:
            state.checkpoint()
            put(state, 20, 20)
            state.checkpoint()
            assert log.trim()
        else:
            follower.advance()
            state.checkpoint()
            state.truncate(kept)
            put(state, 1, 1)
            state.checkpoint()
        follower.advance()
        assert content(follower) == content(state)


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
        positions.append(state.commit(change, b"x" * n).result(LIMIT_SECONDS))
    assert follower.advance(positions[3]) == positions[3]
    assert follower.store(SOURCE).get("s") == 3
    assert follower.advance(positions[1]) == positions[3]  # it never goes back
    assert follower.advance() == positions[6]
    assert seen == [(position, n, n) for n, position in enumerate(positions)]
    log.close()
    reopened = Log.open(tmp_path / "log")
    last = reopened.append(b"data alone").result(LIMIT_SECONDS)
    assert follower.advance() == last
    reopened.close()
    reader.close()


def test_a_reader_in_another_process_follows_a_drop(tmp_path: Path) -> None:
    """It loses what was dropped, and finds the new store of that name, through the handles that it had before."""
    log = Log.open(tmp_path / "log", KEEPING)
    state = BucketState.open(log)
    put(state, 1, "old")
    with _Following(tmp_path / "log") as follow:
        assert follow() == [[[1, "old"]], "old", 1]
        state.drop_store(state.store(ORDERS)).result(LIMIT_SECONDS)
        assert follow() == [[], None, 0]
        put(state, 1, "new")
        put(state, 2, "more")
        assert follow() == [[[1, "new"], [2, "more"]], "new", 1]
        state.drop_store(state.store(ORDERS)).result(LIMIT_SECONDS)
        put(state, 3, "dropped and registered between two looks")
        assert follow() == [[[3, "dropped and registered between two looks"]], None, 1]
        state.checkpoint()
    with _Following(tmp_path / "log") as follow:
        assert follow() == [[[3, "dropped and registered between two looks"]], None, 1]
    log.close()


class _Following:
    """A process with a `StateReader`. Called: advances it, and returns what it finds: all items, that of key 1, and the
    number of stores."""

    _PROGRAM = """
import json, sys
from pathlib import Path
from penstock.log import LogReader
from penstock.state import StateReader
from tests.state.stores import ORDERS
follower = StateReader.open(LogReader.open(Path(sys.argv[1])))
orders = follower.store(ORDERS)
for _ in sys.stdin:
    follower.advance()
    print(json.dumps([list(orders.items()), orders.get(1), len(follower.stores())]), flush=True)
"""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-c", self._PROGRAM, str(directory)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> _Following:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(LIMIT_SECONDS) == 0
