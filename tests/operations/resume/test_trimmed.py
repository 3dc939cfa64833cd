"""A parked table that no changefeed takes: the log goes on without its rows, and it can be resumed all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capture.loop import Capture
from penstock.log import Log, LogReader, LogSettings
from penstock.operations.config.model import Places
from penstock.operations.resume.resume import resume_table
from penstock.operations.status import read_status
from penstock.state import BucketState, StateSettings
from tests.capture.streams import StreamSource
from tests.operations.resume.shop import DEFINITION, Shop, capture, config_of, file_with, replayed
from tests.operations.resume.test_resume import parked_shop

TRIMMING = LogSettings(ledger_entries_max=2, maintenance_interval_seconds=0, retention_seconds=0, retention_bytes=0)


def trimmed_shop(state_dir: Path, *after: str) -> Shop:
    """The log begins after everything that the stream holds."""
    stream = parked_shop(*after)
    by_hand = StateSettings(checkpoint_at_roll=False)
    with Log.open(state_dir / "log", TRIMMING) as log:
        assert Capture(log, StreamSource(stream), entry_bytes=1, state_settings=by_hand).run(until_now=True)
    with Log.open(state_dir / "log", TRIMMING) as log:
        state = BucketState.open(log, by_hand)
        for _ in range(by_hand.checkpoints_kept):
            log.append(b"").result()
            state.checkpoint()
        cursor = log.open_cursor("everybody")
        cursor.mark_delete(log.end()).result()
        cursor.close()
        assert log.trim()
    reader = LogReader.open(state_dir / "log")
    assert not reader.complete
    reader.close()
    return stream


def parked(state_dir: Path) -> set[str]:
    return {one.table for one in read_status(Places(state_dir=state_dir)).parked}


@pytest.mark.parametrize("alters", [0, 1, 3])
def test_statements_that_the_log_has_no_more(tmp_path: Path, alters: int) -> None:
    stream = trimmed_shop(tmp_path, *(f"ALTER TABLE orders ADD x{i} int" for i in range(alters)))
    stream.insert("orders", (3, 30, 300, *range(alters)), table_id=75)
    capture(tmp_path, stream)
    assert parked(tmp_path) == {"shop.orders"}
    text = DEFINITION.replace("`w` int(11)", ", ".join(["`w` int(11)", *(f"x{i} int" for i in range(alters))]))
    assert resume_table(config_of(tmp_path), "shop.orders", file_with(tmp_path, text)).plan.rows == 1
    assert not parked(tmp_path)
    stream.insert("orders", (4, 40, 400, *range(alters)), table_id=75)
    capture(tmp_path, stream)
    assert [row["id"] for row in replayed(tmp_path)[0]["shop.orders"]] == [3, 4] and not parked(tmp_path)


@pytest.mark.parametrize("after", ["DROP TABLE orders", "RENAME TABLE orders TO archive", "DROP DATABASE shop"])
def test_a_name_that_stands_for_nothing_any_more(tmp_path: Path, after: str) -> None:
    trimmed_shop(tmp_path, after)
    waiting = parked(tmp_path)
    assert "shop.orders" in waiting
    for name in sorted(waiting, reverse=True):
        text = file_with(tmp_path, DEFINITION.replace("`orders`", name))
        assert resume_table(config_of(tmp_path), name, text).plan.rows == 0
    assert not parked(tmp_path)
