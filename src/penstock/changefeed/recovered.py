"""The facts of a changefeed whose state directory was lost, as they were found at its sink: written before its keeper is opened
for the first time (docs/formats/progress-object.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.changefeed.facts import CHECKPOINT, CHECKPOINT_KEY, DISPATCHERS, SETTINGS, DispatcherFacts
from penstock.delivery.payload import dispatcher_id
from penstock.files import REAL_FILES, Files
from penstock.log import RecordLog
from penstock.log.position import Position, Seq
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.state import BucketState

Name = tuple[str, str]

LEDGERS_APART = 1 << 20  # more ledgers than anybody fills between two writes of a progress object


def first_ledger_after(ledger_id: int) -> int:
    """The first ledger of a log that goes on after one with this ledger: no seq of it is as large."""
    return (ledger_id // LEDGERS_APART + 1) * LEDGERS_APART


def is_recovered(first: Position) -> bool:
    """Whether the log with this first position went on after another one."""
    return first.ledger_id >= LEDGERS_APART


def write_recovered(
    state_dir: Path,
    name: str,
    *,
    progress: Mapping[Name, Seq],
    checkpoint_ts: int,
    settings: RowSettings,
    files: Files = REAL_FILES,
) -> None:
    """Rows of these tables, by their names at the sink, at or below these seqs of the new log are at the sink. One frame,
    durable when it returns. For the holder of the state directory's lock."""
    record = RecordLog.open(state_dir / "progress", name, files=files)
    try:
        state = BucketState.open(record)
        change = state.begin()
        for (schema, table), seq in progress.items():
            facts = DispatcherFacts(1, schema, table, progress=seq, progress_commit_ts=checkpoint_ts, recovered=seq)
            state.store(DISPATCHERS).put(change, str(dispatcher_id(name, schema, table)), facts.to_json())
        state.store(CHECKPOINT).put(change, CHECKPOINT_KEY, checkpoint_ts)
        state.store(SETTINGS).put(change, 1, SettingsVersion(BEGINNING, 0, settings).to_json())
        state.commit(change).result(None)
        state.close()
    finally:
        record.close()


def recorded_facts(state_dir: Path, name: str, files: Files = REAL_FILES) -> dict[str, DispatcherFacts]:
    """The facts of a changefeed whose keeper is not open. For the holder of the state directory's lock."""
    if not files.exists(state_dir / "progress" / f"{name}.end"):
        return {}  # opening it would make it
    record = RecordLog.open(state_dir / "progress", name, files=files)
    try:
        state = BucketState.open(record)
        try:
            return {key: DispatcherFacts.from_json(value) for key, value in state.store(DISPATCHERS).items()}
        finally:
            state.close()
    finally:
        record.close()
