"""How a state comes back: the newest good checkpoint, then every frame of the log after it.

(1) Take the newest checkpoint that is not damaged and whose entry the log has, or had before it was trimmed. (2) Where
there is none, start with the whole log, if every frame of this state is still there; else raise `StateLost`, which
names what is damaged: a lost state is never opened as an empty one. (3) Apply the frames after it, in order, up to and
including a bound.

A page of a checkpoint is checked when it is first read. Where damage comes to light only then, recovery starts over,
and reads every byte of a checkpoint before it trusts it.
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
from penstock.state.engines.refusals import typed_refusals
from penstock.state.settings import StateSettings
from penstock.state.types.registry import REGISTRY_NAMESPACE, Registry

DIRECTORY = "state"  # in the directory of the log
PIN = "state"  # pins the log at the oldest checkpoint that is kept
START_PIN = "state.start"  # pins the first entry that a whole replay needs, until enough checkpoints are kept
_APPLY_BYTES = 1 << 20  # changes of several frames are applied together: far fewer steps
_REPORT_SECONDS = 0.2  # between two reports of progress
_REPORT_FRAMES = 256  # the clock is read once in so many frames


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
    """What a recovery gives."""

    engine: StateEngine
    registry: Registry
    way: str  # one of `RECOVERY_WAYS` (observe/metrics.py)


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where the checkpoints and the log of a state are, and how they are opened."""

    reader: LogReader
    files: Files
    clock: Clock
    settings: StateSettings
    read_only: bool

    @property
    def directory(self) -> Path:
        return self.reader.directory / DIRECTORY

    def open_engine(self, *, at: Position | None, verify: bool = False) -> StateEngine:
        """The engine at the newest good checkpoint at or below `at`."""
        return open_engine(
            self.settings.engine,
            self.directory,
            files=self.files,
            clock=self.clock,
            settings=self.settings,
            read_only=self.read_only,
            at=at,
            verify=verify,
        )


def recover(
    location: StateLocation, to: Position, progress: OnProgress | None = None, *, verify: bool = False
) -> Recovered:
    """The state after every frame up to and including `to`. See the module."""
    started = time.perf_counter()
    reporter = ProgressReporter(progress, started)
    reporter.report(RecoveryProgress("checkpoint", None), always=True)
    try:
        recovered = _attempt(location, to, reporter, verify)
    except Corruption:
        if verify:
            raise
        # A damaged page was read that the open had not needed: the next attempt reads every byte of a checkpoint first.
        recovered = _attempt(location, to, reporter, verify=True)
    METRICS.state_recovery_seconds.labels(recovered.way).observe(time.perf_counter() - started)
    return recovered


def _attempt(location: StateLocation, to: Position, reporter: ProgressReporter, verify: bool) -> Recovered:
    identity.check(location.files, location.directory, location.reader.uuid)
    engine = location.open_engine(at=to, verify=verify)
    try:
        if location.read_only:
            location.reader.refresh()  # the owner may have trimmed; the owner's own reader sees its trims at once
        else:
            _drop_unknown_checkpoints(location.reader, engine)
            # A checkpoint that a killed process removed may come back after a power cut, unless its removal is durable: when
            # the log has been truncated, and trimmed, beyond it, nobody could tell that it is not part of the history.
            if location.files.exists(location.directory):
                with typed_refusals(location.directory):
                    location.files.sync_directory(location.directory)
        base = engine.position
        way = "replay" if base is None else "older checkpoint" if engine.damaged else "checkpoint"
        replay(location.reader, engine, _replay_start(location, engine, to), to, reporter)
        with engine.create_snapshot() as snapshot:
            registry = Registry(snapshot.iterate(REGISTRY_NAMESPACE))
            registry.check(snapshot.namespaces())
    except BaseException:
        engine.close()
        raise
    if base is None and not len(registry):
        way = "empty"
    return Recovered(engine, registry, way)


def _drop_unknown_checkpoints(reader: LogReader, engine: StateEngine) -> None:
    """Drops checkpoints whose entries the log does not know: it was truncated or restored without its state."""
    unknown = [info.position for info in engine.checkpoints() if not holds_entry(reader, info.position)]
    if unknown:
        lowest = min(unknown)
        engine.drop_after(Position(lowest.ledger_id, lowest.entry_id - 1))


def holds_entry(reader: LogReader, position: Position) -> bool:
    """Whether the log has the entry, or had it before it was trimmed. Of the ledgers before the last trimmed one nobody
    knows how many entries they had."""
    if position.ledger_id < reader.trimmed_below:
        return reader.trimmed_to is None or position <= reader.trimmed_to
    return any(v.info.id == position.ledger_id and position.entry_id < v.entries for v in reader.ledgers())


def _replay_start(location: StateLocation, engine: StateEngine, to: Position) -> Position:
    """The first frame to apply. Raises `StateLost` where frames from there on were trimmed."""
    reader, base = location.reader, engine.position
    damaged = "".join(f"; {finding}" for finding in engine.damaged)
    if base is not None:
        trimmed = reader.trimmed_to or Position(reader.trimmed_below - 1, -1)
        if base < trimmed:  # entries after the checkpoint are gone; every trimmed ledger held some
            raise StateLost(
                f"the newest good checkpoint of {location.directory} is at {base}, and the log starts at"
                f" {reader.first}{damaged}",
                hint="restore the state's directory or the log's first ledgers from a copy",
            )
        return reader.next(base)
    if reader.complete or START_PIN in pins(reader.metadata, reader.name) or location.settings.start_empty:
        return reader.first
    if engine.damaged:
        raise StateLost(
            f"every checkpoint of {location.directory} is damaged, and the log's first ledgers were trimmed{damaged}",
            hint="nothing was changed; restore the directory from a copy",
        )
    raise StateLost(
        f"the log's first ledgers were trimmed, and {location.directory} has no checkpoint at or below {to}",
        hint="restore that directory from a copy; if this log never had state, open it with start_empty=True",
    )


def replay(reader: LogReader, engine: StateEngine, start: Position, to: Position, reporter: ProgressReporter) -> None:
    """Applies the frames from `start` to `to`, both included."""
    if start > to:
        reporter.report(RecoveryProgress("done", to), always=True)
        return
    records_total, bytes_total = _size(reader, start, to)
    waiting: list[bytes] = []
    size = records = done = changes = 0
    position: Position | None = None
    began = time.perf_counter()

    def report(phase: str, *, always: bool) -> None:
        spent = time.perf_counter() - began
        left = spent / done * (bytes_total - done) if done and bytes_total else None
        reporter.report(
            RecoveryProgress(
                phase,
                position,
                done,
                bytes_total,
                records,
                records_total,
                changes,
                time.perf_counter() - reporter.started,
                max(left, 0.0) if left is not None else None,
            ),
            always=always,
        )

    report("replay", always=True)
    refuse_skipped(reader, start, to)
    for position, header, raw in reader.scan_encoded(start, to):  # noqa: B007 (read after the loop and by `report`)
        if raw:
            waiting.append(raw)
            size += len(raw)
            if size >= _APPLY_BYTES:
                changes += engine.apply_encoded(b"".join(waiting))
                waiting.clear()
                size = 0
        records += 1
        done += header.frame_bytes
        if not records % _REPORT_FRAMES:
            report("replay", always=False)
    if waiting:
        changes += engine.apply_encoded(b"".join(waiting))
    bytes_total = done
    report("done", always=True)


def refuse_skipped(reader: LogReader, start: Position, to: Position) -> None:
    """Raises `Corruption` where entries between the two were skipped, because they cannot be read: their changes of state are
    lost, and a state without them would be a wrong one."""
    if spans := reader.skipped(start, to):
        told = ", ".join(f"{first} … {last}" for first, last in spans)
        raise Corruption(
            f"state cannot be made from log {reader.name}: entries were skipped, and their changes are lost: {told}",
            hint="restore a checkpoint that is newer than these entries, or the log, from a copy",
        )


def _size(reader: LogReader, start: Position, to: Position) -> tuple[int, int]:
    """(frames, bytes) between the two; for a part of a ledger the bytes are estimated by its share of the entries."""
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
    """Reports the progress of a recovery to a callback and the metrics, at most every 0.2 seconds unless `always`."""

    def __init__(self, progress: OnProgress | None, started: float) -> None:
        self._progress = progress
        self.started = started
        self._reported = 0.0

    def report(self, progress: RecoveryProgress, *, always: bool) -> None:
        now = time.perf_counter()
        if not always and now - self._reported < _REPORT_SECONDS:
            return
        self._reported = now
        METRICS.state_recovery_bytes_left.set(max(progress.bytes_total - progress.bytes_done, 0))
        METRICS.state_recovery_seconds_left.set(progress.seconds_left or 0.0)
        if self._progress is not None:
            self._progress(progress)
