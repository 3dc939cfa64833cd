"""How far behind a changefeed is: a figure for status, and no entry of the log takes a run down with it."""

from __future__ import annotations

from pathlib import Path

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.lag import Lag
from penstock.log import LogReader
from penstock.log.position import Position

from .conftest import OpenKeeper


def deliver_up_to(keeper: Keeper, end: Position) -> None:
    """Published without rows: there is nothing to wait for."""
    keeper.published("run", keeper.begin_run("run"), end, 0, {})
    assert keeper.mark_delete == end


def appended_ms(reader: LogReader, position: Position) -> int:
    [entry] = reader.read(position, position)
    return entry.wall_ms


def test_the_age_of_the_entry_after_mark_delete_and_0_once_all_are_delivered(
    state_dir: Path, open_keeper: OpenKeeper
) -> None:
    keeper = open_keeper()
    with LogReader.open(state_dir / "log") as reader:
        lag, first = Lag(keeper, reader), appended_ms(reader, Position(1, 0))
        assert lag.seconds(first + 1500) == 1.5
        deliver_up_to(keeper, Position(1, 19))
        assert lag.seconds(appended_ms(reader, Position(1, 20)) + 2500) == 2.5
        deliver_up_to(keeper, reader.end())
        assert lag.seconds(first + 9000) == 0.0


def test_an_unreadable_entry_counts_from_the_last_one_that_could_be_read(
    state_dir: Path, open_keeper: OpenKeeper
) -> None:
    """The driver names it, and its sink stands still; the run and its other sinks go on."""
    path = state_dir / "log" / "ledger-0000000000000001.log"
    whole = path.read_bytes()
    assert whole.count(b"entry 20") == 1
    path.write_bytes(whole.replace(b"entry 20", b"entry XX"))
    keeper = open_keeper()
    with LogReader.open(state_dir / "log") as reader:
        lag, first = Lag(keeper, reader), appended_ms(reader, Position(1, 0))
        assert lag.seconds(first + 500) == 0.5
        deliver_up_to(keeper, Position(1, 19))
        assert lag.seconds(first + 700) == 0.7
        late = Lag(keeper, reader)
        assert [late.seconds(first + 1000), late.seconds(first + 3000)] == [0.0, 2.0], "from when it was met"

        path.write_bytes(whole)
        assert lag.seconds(appended_ms(reader, Position(1, 20)) + 300) == 0.3, "it healed"
