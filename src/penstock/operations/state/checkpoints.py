"""Checkpoints of a state: `penstock state checkpoint` writes one, `penstock state verify` checks all.

Checkpoints are right if they are undamaged and each leads to the same state as the whole log.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Corruption, Unavailable
from penstock.log import Log, LogReader, Position, Trimmed
from penstock.log.ledgers.holds import pins
from penstock.operations.log.locate import locate_log, open_reader
from penstock.operations.state.looking import location_of, settings_for
from penstock.state import BucketState, CheckpointInfo
from penstock.state.checkpoints.recovery import START_PIN, ProgressReporter, StateLocation, replay
from penstock.state.engines.opening import open_engine
from penstock.state.reader import find_checkpoints

_ATTEMPTS_MAX = 3  # of a check under which the owner replaced everything that it began with


def checkpoint_state(path: Path, *, compact: bool) -> CheckpointInfo | None:
    """Becomes the log's owner and writes a checkpoint of its state; None where the log has no state."""
    directory = locate_log(path)
    settings = settings_for(directory)
    try:
        log = Log.open(directory)
    except Unavailable as error:
        raise Unavailable(
            f"a checkpoint is written by the log's owner, and {error.message}",
            hint="a running flow writes its own, whenever a ledger is full; stop it to write one by hand",
        ) from error
    with log:
        state = BucketState.open(log, settings)
        info = state.checkpoint()
        if info is not None and compact:
            state.engine.compact()
            return state.checkpoints()[0]
        return info


@dataclass(frozen=True, slots=True)
class StateCheck:
    """What was found. `ways` counts the starts that were replayed to the end: each checkpoint, and the whole log if it
    is still there."""

    directory: Path
    checkpoints: int
    ways: int
    keys: int
    faults: list[str]

    @property
    def sound(self) -> bool:
        return not self.faults


def verify_state(path: Path) -> StateCheck:
    """Reads every byte of every checkpoint, and checks that each, with the frames after it, leads to the same state.

    The owner may be at work: what it removes meanwhile, because a newer checkpoint took its place, is left out.
    """
    with open_reader(path) as reader:
        for _ in range(_ATTEMPTS_MAX):
            check = _verify(reader)
            if check is not None:
                return check
    raise Unavailable(
        f"the checkpoints of {path} are replaced faster than they are checked",
        hint="try again, or stop the flow meanwhile",
    )


def _verify(reader: LogReader) -> StateCheck | None:
    """None where the owner replaced everything that could lead to the state of the present end."""
    faults: list[str] = []
    location = location_of(reader)
    first, end = reader.first, reader.end()
    found = find_checkpoints(location)
    with location.open_engine(at=None) as engine:
        faults += [str(finding) for finding in engine.verify()]
    results: list[tuple[str, int, int]] = []
    starts: list[Position | None] = [info.position for info in found]
    if reader.complete or START_PIN in pins(reader.metadata, reader.name):
        starts.append(None)
    replaced = 0
    for start in starts:
        way = "the whole log" if start is None else f"the checkpoint at {start}"
        try:
            results.append((way, *_digest(location, start, first, end)))
        except _Replaced:
            replaced += 1
        except Corruption as error:
            faults.append(f"{way}: {error.message}")
    for way, digest, _ in results[1:]:
        if digest != results[0][1]:
            faults.append(f"{way} leads to another state than {results[0][0]}")
    if not results and not faults:
        if replaced:
            return None
        faults.append("neither a checkpoint nor the log holds all of the state")
    return StateCheck(reader.directory, len(found), len(results), results[0][2] if results else 0, faults)


class _Replaced(Exception):
    """The owner removed the checkpoint, or the frames after it, since they were found."""


def _digest(location: StateLocation, start: Position | None, first: Position, end: Position) -> tuple[int, int]:
    """(checksum, number of keys) of the state at `end`, replayed from the checkpoint at `start` or, for None, from
    nothing and the frame `first` on. Raises `_Replaced`."""
    with open_engine("native", None) if start is None else location.open_engine(at=start) as engine:
        if engine.position != start:
            raise _Replaced
        reader = location.reader
        if start is not None:
            first = reader.next(start)
            if start < (
                reader.trimmed_to or Position(reader.trimmed_below - 1, -1)
            ):  # asked after `next`, which passes over what is gone
                raise _Replaced
        try:
            replay(reader, engine, first, end, ProgressReporter(None, time.perf_counter()))
        except Trimmed as error:
            raise _Replaced from error
        crc = keys = 0
        with engine.create_snapshot() as snapshot:
            for number in snapshot.namespaces():
                for key, value in snapshot.iterate(number):
                    head = b"%d,%d,%d:" % (number, len(key), len(value))
                    crc = zlib.crc32(value, zlib.crc32(key, zlib.crc32(head, crc)))
                    keys += 1
        return crc, keys
