"""What ends a flow, or a connection, keeps nothing back and leaves no hole: events that nobody reads, a log that refuses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.binlog.types import EventType
from penstock.capture.loop import Capture
from penstock.capture.transactions.frame_content import FrameContent
from penstock.capture.transactions.reading import Reading
from penstock.clock import ManualClock
from penstock.commit_ts import CommitClock
from penstock.errors import Corruption, PenstockError, StorageFailed, Unavailable
from penstock.files.memory import MemoryFiles
from penstock.log import Log, LogSettings
from penstock.metadata.memory import MemoryMetadata
from penstock.sources.position import SourcePosition
from penstock.sources.source import IDLE, Beginning, Chunk, SourceError
from tests.capture.fake_log import FakeLog
from tests.capture.streams import FILE, Stream, StreamSource
from tests.capture.test_kills import DIRECTORY, committed
from tests.capture.test_machine import SMALL, TwoFiles


class World:
    """A log in memory, and captures into it one after the other."""

    def __init__(self) -> None:
        self.files, self.metadata, self.clock = MemoryFiles(), MemoryMetadata(), ManualClock()

    def open_log(self) -> Log:
        return Log.open(DIRECTORY, LogSettings(), self.files, self.clock, self.metadata)

    def run(self, source: Any) -> None:
        log = self.open_log()
        try:
            Capture(log, source, clock=self.clock).run()
        finally:
            log.close()

    def committed(self) -> list[list[bytes]]:
        return committed(self.files, self.metadata)


def damaged(stream: Stream) -> None:
    raw = bytearray(stream.events[-1])
    raw[30] ^= 1
    stream.events[-1] = bytes(raw)


def cut_short(stream: Stream) -> None:
    stream.events[-1] = stream.events[-1][:9] + (7).to_bytes(4, "little") + stream.events[-1][13:]


@pytest.mark.parametrize("harm", ["incident", "checksum", "size"])
def test_what_came_before_an_event_that_ends_the_flow_is_kept(harm: str) -> None:
    stream = Stream()
    stream.transaction([10])
    stream.transaction([20, 30])
    expected = list(stream.committed)
    if harm == "incident":
        stream.add(EventType.INCIDENT, b"\1\0\0")
    else:
        stream.transaction([40])
        (damaged if harm == "checksum" else cut_short)(stream)
    world = World()
    for _ in range(2):
        with pytest.raises(PenstockError, match="lost events" if harm == "incident" else "checksum|below a header"):
            world.run(StreamSource(stream, 100))
        assert world.committed() == expected


def test_a_frame_that_the_log_refuses_is_no_lost_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on after it, as after a lost connection, would leave the frame out for good."""
    stream = Stream()
    stream.transaction([10])
    stream.xa_begin("g")
    stream.statement(30)
    stream.xa_prepare("g")
    stream.transaction([20])
    stream.xa_commit("g")
    world = World()
    log = world.open_log()
    with monkeypatch.context() as patch, pytest.raises(Unavailable, match="all the time"):
        capture = Capture(log, StreamSource(stream, 1), clock=world.clock)

        def pin(name: str, at: object) -> None:
            raise Unavailable(f"pin {name} at {at}: others change the log all the time")

        patch.setattr(capture._recorder.groups._log, "pin", pin)
        capture.run()
    log.close()
    assert capture._recorder.failed
    world.run(StreamSource(stream, 1))
    assert world.committed() == stream.committed


def test_nothing_is_appended_after_a_frame_that_was_not() -> None:
    stream = Stream()
    stream.transaction([10])
    world = World()
    world.run(StreamSource(stream))
    log = world.open_log()
    recorder = Capture(log, StreamSource(stream), clock=world.clock)._recorder
    position = recorder.position
    assert position is not None
    with pytest.raises(Corruption, match="went back"):
        recorder.append(FrameContent([], position.at(FILE, 4)))
    with pytest.raises(StorageFailed, match="an earlier frame"):
        recorder.append(FrameContent([], position.at(FILE, position.pos + 1)))
    log.close()
    world.run(StreamSource(stream))  # the refused position was never written
    assert world.committed() == stream.committed


class Reconnecting(StreamSource):
    """The line breaks before each event once, wherever the stream is."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, 1)
        self.opened = 0

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        self.opened += 1
        for number, chunk in enumerate(super().open(position)):
            if number > self.opened:
                raise Unavailable("the line broke")
            yield chunk


def test_a_connection_that_breaks_at_every_event() -> None:
    stream = Stream()
    stream.begin()
    stream.statement(300)
    stream.savepoint("a")
    stream.statement(300)
    stream.statement(300)
    stream.rollback_to("a")
    stream.statement(300)
    stream.commit()
    world = World()
    source = Reconnecting(stream)
    log = world.open_log()
    Capture(log, source, clock=world.clock, entry_bytes=1, events_bytes_max=700).run()
    log.close()
    assert world.committed() == stream.committed
    assert source.opened > len(stream.events) // 2


class TwoFilesOnce(TwoFiles):
    """Idle after the rotation; then the line breaks once, inside the first transaction of the second file."""

    lower_case_table_names = 0
    broken = False
    clock: ManualClock

    def begin(self, version: int) -> Beginning:
        del version
        return Beginning(SourcePosition(FILE, 4, source=self.name))

    def resume(self, position: SourcePosition) -> SourcePosition:
        return position

    def open(self, position: SourcePosition) -> Iterator[Chunk]:
        second = 0
        for chunk in super().open(position):
            second += chunk.file == "bin.000002"
            if second == 4 and not self.broken:
                self.broken = True
                raise Unavailable("the line broke")
            yield chunk
            if second == 1 and not self.broken:
                for _ in range(3):  # until the position is saved
                    self.clock.advance(2)
                    time.sleep(0.05)
                    yield IDLE


def test_a_new_connection_never_goes_back_behind_what_was_passed() -> None:
    """A transaction that the server gave up, a new file, and a saved position in it: the next connection begins there."""
    first, second = Stream(), Stream(gtid=1)
    first.transaction([20])
    first.begin()
    for _ in range(4):
        first.statement(300)
    second.transaction([40, 50, 60])
    world = World()
    source = TwoFilesOnce(first, second)
    source.clock = world.clock
    log = world.open_log()
    Capture(log, source, clock=world.clock, entry_bytes=1, events_bytes_max=SMALL).run()  # type: ignore[arg-type]
    log.close()
    assert source.broken and world.committed() == first.committed + second.committed


def test_a_statement_without_gtid_takes_the_place_of_an_open_transaction() -> None:
    """The server died inside a transaction; where servers have no GTIDs, its next file may begin with a DDL."""
    first, second, shorter = Stream(), Stream(gtid=9), Stream()
    for stream in (first, shorter):
        stream.transaction([20])
    first.begin()
    for _ in range(4):
        first.statement(300)
    second.query("CREATE TABLE shop.x (id int primary key)")
    second.committed.append([second.events[-1]])
    second.transaction([10])
    log = FakeLog()
    log.run(first, stop_after=len(first.events), bytes_max=SMALL)
    assert log.frames[-1].open is not None
    log.run(TwoFiles(shorter, second), bytes_max=SMALL)  # type: ignore[arg-type]
    assert log.committed() == shorter.committed + second.committed
    assert len(log.void) == 1


@pytest.mark.parametrize(
    ("file", "begun", "refused"),
    [
        ("bin.000004", 900, False),  # the server begins with an earlier file, because the log lacks something there
        ("bin.000004", 1001, True),  # an earlier file that was begun later: RESET MASTER
        ("bin.000005", 1000, False),
        ("bin.000005", 1001, True),
        ("bin.000006", 1001, False),  # the one that the log knows is purged
        ("other.000001", 1001, False),
    ],
)
def test_a_reset_is_found_by_when_files_were_begun(file: str, begun: int, refused: bool) -> None:
    at = SourcePosition("bin.000005", 400, gtid="0-7-9", source="s", by_gtid=True, begun=1000)
    reading = Reading(at, CommitClock())
    reading.use_file(file, waiting=False)
    if not refused:
        reading.file_begun(begun)
        return
    with pytest.raises(SourceError, match="was reset"):
        reading.file_begun(begun)
