"""Stores, logs and steps that several tests of states use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.log import Log, LogSettings, Position
from penstock.state import BucketState, StateDescriptor, StateReader, StateSettings
from penstock.state.engines.native.pages import PageLayout
from penstock.state.types import codecs
from tests.support.waiting import LIMIT_SECONDS, wait_until

SOURCE: StateDescriptor[str, Any] = StateDescriptor("source.position", "capture", codecs.text, codecs.json)
ORDERS: StateDescriptor[int, Any] = StateDescriptor("orders", "test", codecs.u64, codecs.json)
# Both roll after four entries. SMALL keeps no ledger that a trim may remove; KEEPING keeps them all.
SMALL = LogSettings(ledger_entries_max=4, preallocate_bytes=4096, retention_seconds=0.0, maintenance_interval_seconds=0)
KEEPING = LogSettings(ledger_entries_max=4, preallocate_bytes=4096, maintenance_interval_seconds=0)


def put(state: BucketState, key: int, value: Any) -> Position:
    change = state.begin()
    state.store(ORDERS).put(change, key, value)
    return state.commit(change, b"entry %d" % key).result(LIMIT_SECONDS)


def content(view: BucketState | StateReader) -> dict[int, Any]:
    return dict(view.store(ORDERS).items())


def wait_for_checkpoint(state: BucketState) -> None:
    """Waits until the checkpoint that a roll of the log asked for is there."""
    wait_until(state.checkpoints, "checkpoint", lambda: state._checkpointer.error)  # type: ignore[attr-defined]


def checkpointed(directory: Path, settings: LogSettings = KEEPING) -> dict[int, Any]:
    """Leaves a log with two checkpoints, which have runs of their own, and frames after them. Returns its content."""
    with Log.open(directory / "log", settings) as log:
        state = BucketState.open(log, StateSettings(checkpoint_at_roll=False, merge_runs_max=8, merge_ratio=100.0))
        for n in range(30):
            put(state, n, "x" * 50)
            if n in (10, 20):
                state.checkpoint()
        assert len(state.checkpoints()) == 2
        if settings.retention_seconds is not None:
            log.trim()
            assert log.reader().trimmed_below > 0
        return content(state)


def runs(directory: Path) -> list[Path]:
    """The files with the checkpoints' content, oldest first."""
    found = sorted(path for path in (directory / "log" / "state").iterdir() if path.name.startswith("run-"))
    assert found
    return found


def flip(path: Path, at: int) -> None:
    """Flips one bit of the byte at that offset."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x10
    path.write_bytes(raw)


def spoil(path: Path, at: int) -> None:
    """As `flip`, in a run; and spoils all of its parity too, so that nothing can rebuild the page."""
    (data_bytes,) = {
        run["data_bytes"]
        for manifest in path.parent.glob("checkpoint-*.json")
        for run in json.loads(manifest.read_text().splitlines()[0])["runs"]
        if f"run-{run['id']:016x}.run" == path.name
    }
    layout = PageLayout(data_bytes)
    flip(path, at)
    for page in range(layout.parity):
        flip(path, layout.parity_at + page * layout.parity_page_bytes)
