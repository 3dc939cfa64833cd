"""The numbers that capture leaves free for the table versions of changefeeds (docs/formats/settings-versions.md)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.capture.loop import Capture
from penstock.capture.recorder import Recorder
from penstock.capture.resumption import followed_schemas
from penstock.capture.transactions.frame_content import FrameContent
from penstock.clock import ManualClock
from penstock.entries.stores import SCHEMA_HISTORY
from penstock.entries.whole_end import WholeEnd, find_whole_end
from penstock.log import Log, LogReader, Position
from penstock.sources.demo import shop
from penstock.sources.position import SourcePosition
from penstock.state import BucketState, StateReader
from tests.capture.streams import Stream, StreamSource


def _end(directory: Path) -> WholeEnd:
    with closing(LogReader.open(directory)) as reader:
        return find_whole_end(reader, Position(reader.first.ledger_id, -1))


@pytest.mark.parametrize("resumes", [False, True])
def test_a_frame_of_state_alone_takes_the_free_number_with_it(tmp_path: Path, resumes: bool) -> None:
    """Two changes of settings with only such a frame between them, and a clock far behind: each has a number of its own."""
    given = []
    for number in range(4):
        log = Log.open(tmp_path / "log")
        state = BucketState.open(log)
        recorder = Recorder(log, state, followed_schemas(state, None), ManualClock())
        if number == 0 or not resumes:
            recorder.append(FrameContent([], SourcePosition("f", 4 + number, commit_ts=10)))
            recorder.finish()
        else:
            recorder.resume(())
        log.close()
        given.append(_end(tmp_path / "log").free_version)
    assert len(set(given)) == 4, given


def test_a_create_select_that_is_open_has_another_number_than_the_settings(tmp_path: Path) -> None:
    stream = Stream()
    stream.ddl(shop.PRODUCTS.create)
    stream.begin(flags2=0x28)
    stream.query("CREATE OR REPLACE TABLE chosen (id int PRIMARY KEY) SELECT 1 AS id")
    stream.statement(40)
    log = Log.open(tmp_path / "log")
    capture = Capture(log, StreamSource(stream, events_per_chunk=1), clock=ManualClock(), entry_bytes=1)
    capture.run(until_now=True)
    log.close()
    with closing(StateReader.open(LogReader.open(tmp_path / "log"))) as state:
        versions = {table.table: table.version for _, table in state.store(SCHEMA_HISTORY).items()}
    assert set(versions) == {"products", "chosen"}
    assert versions["products"] < _end(tmp_path / "log").free_version < versions["chosen"]
