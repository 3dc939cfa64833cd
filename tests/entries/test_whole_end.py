"""Where the last whole transaction of a log ends."""

from __future__ import annotations

from pathlib import Path

from penstock.entries.stores import SOURCE, SOURCE_OPEN, SOURCE_POSITION
from penstock.entries.whole_end import WholeEnd, find_whole_end
from penstock.log import Log, LogReader, Position
from penstock.sources.position import OpenTransaction, SourcePosition
from penstock.state import BucketState


class _Capture:
    """Appends frames as capture does: an entry, the position after it, and the transaction that is open then."""

    def __init__(self, directory: Path) -> None:
        self.log = Log.open(directory)
        self.state = BucketState.open(self.log)

    def append(self, commit_ts: int, *, opened: bool = False) -> None:
        change = self.state.begin()
        if opened:
            made = OpenTransaction(commit_ts, "", "f", 4, 1, 0, 9)
            self.state.store(SOURCE_OPEN).put(change, SOURCE, made)
        else:
            if self.state.store(SOURCE_OPEN).get(SOURCE) is not None:
                self.state.store(SOURCE_OPEN).delete(change, SOURCE)
            self.state.store(SOURCE_POSITION).put(change, SOURCE, SourcePosition("f", 4, commit_ts=commit_ts))
        self.state.commit(change, b"entry").result()

    def close(self) -> None:
        self.state.close()
        self.log.close()


def test_an_open_transaction_is_not_whole(tmp_path: Path) -> None:
    capture = _Capture(tmp_path / "log")
    for commit_ts in (5, 7, 9):
        capture.append(commit_ts)
    reader = LogReader.open(tmp_path / "log")
    end = reader.end()
    assert find_whole_end(reader, Position(end.ledger_id, -1)) == WholeEnd(end, 10)
    capture.append(20, opened=True)
    capture.append(20, opened=True)
    for known in (Position(end.ledger_id, -1), Position(end.ledger_id, end.entry_id - 1), end):
        assert find_whole_end(reader, known) == WholeEnd(end, 19), "a DDL in it has its number; the one before is free"
    capture.append(20)
    assert find_whole_end(reader, end) == WholeEnd(reader.end(), 21)
    capture.close()
