"""How a state comes back: the newest good checkpoint, then every frame of the log after it.

(1) the newest checkpoint that checks and that the log still knows; a damaged one is stepped over; (2) where there is none,
the whole log, if it is complete for this state; else `StateLost`, which names what is damaged: never an empty state in
silence; (3) the frames after it, in order, up to and including a bound. Damage that is found later (a block is checked when
it is first read) starts over with every byte of a checkpoint read before it is trusted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import Corruption, Terminal
from penstock.files import Files
from penstock.log import LogReader, Position
from penstock.log.ledgers.holds import pins
from penstock.observe.metrics import METRICS
from penstock.state.checkpoints import identity
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings
from penstock.state.types.registry import REGISTRY_NAMESPACE, Registry

DIRECTORY = "state"  # in the log's
PIN = "state"  # at the oldest checkpoint that is kept
START_PIN = "state.start"  # at the first entry that a whole replay needs, until there are checkpoints enough
_APPLY_BYTES = 1 << 20  # changes of several frames are applied at once: far fewer steps
_TELL_SECONDS = 0.2


class StateLost(Terminal):
    """Neither a checkpoint nor the log holds all of the state. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class RecoveryProgress:
    """How far a recovery is. `phase`: "checkpoint", "replay", "done"."""

    phase: str
    position: Position | None  # applied up to here
    bytes_done: int = 0
    bytes_total: int = 0
    records_done: int = 0  # frames
    records_total: int = 0
    changes: int = 0
    seconds: float = 0.0
    seconds_left: float | None = None  # None: not known yet


OnProgress = Callable[[RecoveryProgress], None]


class Recovered(NamedTuple):
    engine: StateEngine
    registry: Registry
    way: str  # one of metrics.RECOVERY_WAYS


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where a state is, and how it is opened there."""

    reader: LogReader
    files: Files
    clock: Clock
    settings: StateSettings
    read_only: bool

    @property
    def directory(self) -> Path:
        return self.reader.directory / DIRECTORY


def recover(
    place: StateLocation, to: Position, progress: OnProgress | None = None, *, verify: bool = False
) -> Recovered:
    """The state after every frame up to and including `to`. See the module."""
    started = time.perf_counter()
    tell = ProgressReporter(progress, started)
    tell.now(RecoveryProgress("checkpoint", None), always=True)
    try:
        recovered = _attempt(place, to, tell, verify)
    except Corruption:
        if verify:
            raise
        # A block that is damaged was met only now: the next attempt reads a checkpoint whole before it trusts it.
        recovered = _attempt(place, to, tell, verify=True)
    METRICS.state_recovery_seconds.labels(recovered.way).observe(time.perf_counter() - started)
    return recovered


def _attempt(place: StateLocation, to: Position, tell: ProgressReporter, verify: bool) -> Recovered:
    identity.check(place.files, place.directory, place.reader.uuid)
    engine = open_engine(
        place.settings.engine,
        place.directory,
        files=place.files,
        clock=place.clock,
        settings=place.settings,
        read_only=place.read_only,
        at=to,
        verify=verify,
    )
    try:
        if place.read_only:
            place.reader.refresh()  # the owner's own reader knows what it trims
        else:
            _drop_strange(place.reader, engine)
        base = engine.position
        way = "replay" if base is None else "older checkpoint" if engine.damaged else "checkpoint"
        replay(place.reader, engine, _replay_start(place, engine, to), to, tell)
        with engine.create_snapshot() as snapshot:
            registry = Registry(snapshot.iterate(REGISTRY_NAMESPACE))
            registry.check(snapshot.namespaces())
    except BaseException:
        engine.close()
        raise
    if base is None and not len(registry):
        way = "empty"
    return Recovered(engine, registry, way)


def _drop_strange(reader: LogReader, engine: StateEngine) -> None:
    """Drops checkpoints of entries that the log does not have: it was cut or restored without its state."""
    strange = [one.position for one in engine.checkpoints() if not holds_entry(reader, one.position)]
    if strange:
        lowest = min(strange)
        engine.drop_after(Position(lowest.ledger_id, lowest.entry_id - 1))


def holds_entry(reader: LogReader, position: Position) -> bool:
    """Whether the log has the entry, or had it before it was trimmed."""
    if position.ledger_id < reader.trimmed_below:
        return True
    return any(v.info.id == position.ledger_id and position.entry_id < v.entries for v in reader.ledgers())


def _replay_start(place: StateLocation, engine: StateEngine, to: Position) -> Position:
    """The first frame to apply. Raises `StateLost` where frames before it are gone."""
    reader, base = place.reader, engine.position
    damaged = "".join(f"; {finding}" for finding in engine.damaged)
    if base is not None:
        if base.ledger_id < reader.trimmed_below - 1:  # the ledger below that held entries
            raise StateLost(
                f"the newest good checkpoint of {place.directory} is at {base}, and the log starts at"
                f" {reader.first}{damaged}",
                hint="restore the state's directory or the log's first ledgers from a copy",
            )
        return reader.next(base)
    if reader.complete or START_PIN in pins(reader.metadata, reader.name) or place.settings.start_empty:
        return reader.first
    if engine.damaged:
        raise StateLost(
            f"every checkpoint of {place.directory} is damaged, and the log's first ledgers were trimmed{damaged}",
            hint="nothing was changed; restore the directory from a copy",
        )
    raise StateLost(
        f"the log's first ledgers were trimmed, and {place.directory} has no checkpoint at or below {to}",
        hint="restore that directory from a copy; if this log never had state, open it with start_empty=True",
    )


def replay(reader: LogReader, engine: StateEngine, start: Position, to: Position, tell: ProgressReporter) -> None:
    """Applies the frames from `start` to `to`, both included."""
    if start > to:
        tell.now(RecoveryProgress("done", to), always=True)
        return
    records_total, bytes_total = _size(reader, start, to)
    waiting: list[bytes] = []
    size = records = done = changes = 0
    position: Position | None = None
    began = time.perf_counter()

    def say(phase: str, *, always: bool) -> None:
        spent = time.perf_counter() - began
        left = spent / done * (bytes_total - done) if done and bytes_total else None
        tell.now(
            RecoveryProgress(
                phase,
                position,
                done,
                bytes_total,
                records,
                records_total,
                changes,
                time.perf_counter() - tell.started,
                max(left, 0.0) if left is not None else None,
            ),
            always=always,
        )

    say("replay", always=True)
    for position, header, raw in reader.scan_encoded(start, to):  # noqa: B007 (read after the loop and by `say`)
        if raw:
            waiting.append(raw)
            size += len(raw)
            if size >= _APPLY_BYTES:
                changes += engine.apply_encoded(b"".join(waiting))
                waiting.clear()
                size = 0
        records += 1
        done += header.frame_bytes
        if not records % 256:
            say("replay", always=False)
    if waiting:
        changes += engine.apply_encoded(b"".join(waiting))
    bytes_total = done
    say("done", always=True)


def _size(reader: LogReader, start: Position, to: Position) -> tuple[int, int]:
    """(frames, bytes) between the two, the bytes of a part of a ledger by its share of the entries."""
    records = size = 0
    for view in reader.ledgers():
        if not start.ledger_id <= view.info.id <= to.ledger_id or not view.entries:
            continue
        first = max(start.entry_id, 0) if view.info.id == start.ledger_id else 0
        last = min(to.entry_id, view.entries - 1) if view.info.id == to.ledger_id else view.entries - 1
        count = max(last - first + 1, 0)
        records += count
        size += view.frames_end * count // view.entries
    return records, size


class ProgressReporter:
    """Tells a callback and the metrics how far a recovery is, not too often."""

    def __init__(self, progress: OnProgress | None, started: float) -> None:
        self._progress = progress
        self.started = started
        self._told = 0.0

    def now(self, progress: RecoveryProgress, *, always: bool) -> None:
        now = time.perf_counter()
        if not always and now - self._told < _TELL_SECONDS:
            return
        self._told = now
        METRICS.state_recovery_bytes_left.set(max(progress.bytes_total - progress.bytes_done, 0))
        METRICS.state_recovery_seconds_left.set(progress.seconds_left or 0.0)
        if self._progress is not None:
            self._progress(progress)
