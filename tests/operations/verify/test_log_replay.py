"""The history of a log whose first ledgers are gone: what is left is decoded as it was made."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from penstock.entries.decode import decode_entries
from penstock.log import Log, LogReader, LogSettings
from penstock.operations.verify.log_replay import read_history
from penstock.schema.changes import ChangeBatch
from penstock.state import BucketState, StateSettings
from penstock.supervisor.child import bound


def _capture(state_dir: Path, changes: int) -> None:
    settings = {
        "state_dir": str(state_dir),
        "source": {"type": "demo", "changes": changes},
        "log": {"ledger": "64KiB"},
        "until": "now",
    }
    command = bound([sys.executable, "-m", "penstock.capture"])
    done = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert done.stdin is not None and done.stdout is not None
    done.stdin.write(json.dumps(settings).encode() + b"\n")
    done.stdin.flush()  # it stays open: its end would ask capture to stop
    said = done.stdout.read()
    assert done.wait() == 0, said


def _shapes(directory: Path, after_ledger: int) -> list[tuple[str, int, tuple[str, ...]]]:
    """Of each batch of rows: the table, how many, and the columns that they were decoded with."""
    reader = LogReader.open(directory)
    try:
        history = read_history(reader)
        entries = [e for e in reader.read(reader.first, reader.end()) if e.position.ledger_id > after_ledger]
        return [
            (batch.table.name, len(batch.seq), tuple(column.name for column in batch.table.columns))
            for batch in decode_entries([e for e in entries if len(e.data)], history.schemas)
            if isinstance(batch, ChangeBatch)
        ]
    finally:
        reader.close()


def test_rows_before_the_oldest_checkpoint_keep_the_schema_that_they_were_made_under(tmp_path: Path) -> None:
    _capture(tmp_path, 20_000)
    directory = tmp_path / "log"
    whole = _shapes(directory, 1)
    assert len({columns for name, _, columns in whole if name == "shop.orders"}) == 2, "a column is added on the way"
    reader = LogReader.open(directory)
    first, *rest = (view.info for view in reader.ledgers())
    reader.close()
    kept = sum(info.frames_end for info in rest)
    with Log.open(directory, LogSettings(retention_bytes=kept + first.frames_end // 2)) as log:
        # Until there are as many checkpoints as are kept, a pin holds the whole log; capture may have ended before that.
        state = BucketState.open(log)
        for _ in range(StateSettings().checkpoints_kept):
            state.commit(state.begin(), b"").result()  # an entry without rows: each checkpoint gets its own position
            state.checkpoint()
        log.trim()
    reader = LogReader.open(directory)
    assert not reader.complete
    assert reader.first.ledger_id == 2
    reader.close()
    assert _shapes(directory, 1) == whole
