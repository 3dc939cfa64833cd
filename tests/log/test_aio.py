"""Answers under asyncio and concurrent.futures, and the log without threads of the caller's own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import BadInput, Closed, StorageFailed
from penstock.log import Cursor, Entry, Log, LogReader, LogSettings, Pending, Position, Terminated, aio
from penstock.log.cursors.reading import Batch
from tests.support.waiting import LIMIT_SECONDS

SETTINGS = LogSettings(preallocate_bytes=4096, maintenance_interval_seconds=0)


def test_an_append_is_awaited_in_every_way(tmp_path: Path) -> None:
    async def main() -> list[Position]:
        with Log.open(tmp_path / "log", SETTINGS) as log:
            return [
                await log.append(b"awaited"),
                await asyncio.ensure_future(log.append(b"a task")),
                await asyncio.wrap_future(log.append(b"a future").as_future()),
                *(await asyncio.gather(*(log.append(b"%d" % n) for n in range(3)))),
                (await log.append_many([b"a", b"b"])).last,
                await asyncio.wait_for(log.append(b"in time"), 10),
            ]

    positions = asyncio.run(main())
    assert [position.entry_id for position in positions] == [0, 1, 2, 3, 4, 5, 7, 8]


def test_waiting_does_not_hold_up_the_loop() -> None:
    pending: Pending[int] = Pending()

    async def main() -> int:
        waiting = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        threading.Thread(target=pending.complete, args=(7,)).start()
        return await waiting

    assert asyncio.run(main()) == 7


def test_a_failure_is_raised_where_it_is_awaited_and_a_cancelled_wait_harms_nobody() -> None:
    pending: Pending[int] = Pending()

    async def main() -> None:
        cancelled = asyncio.ensure_future(pending)
        waiting = asyncio.ensure_future(pending)
        await asyncio.sleep(0)
        cancelled.cancel()
        pending.fail(StorageFailed("no disk"))
        with pytest.raises(StorageFailed, match="no disk"):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(StorageFailed, match="no disk"):
            await pending

    asyncio.run(main())


def test_a_loop_that_was_closed_meanwhile_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    pending: Pending[int] = Pending()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pending, 0.01)

    asyncio.run(main())
    pending.complete(1)
    assert pending.result(0) == 1
    assert not caplog.records


def test_a_real_future(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", SETTINGS) as log:
        futures = [log.append(b"%d" % number).as_future() for number in range(3)]
        done, left = concurrent.futures.wait(futures, 10)
        assert (len(done), len(left)) == (3, 0)
        assert [future.result().entry_id for future in futures] == [0, 1, 2]
        assert not futures[0].cancel()
        failed: Pending[int] = Pending()
        future = failed.as_future()
        failed.fail(StorageFailed("no disk"))
        assert isinstance(future.exception(0), StorageFailed)


def test_open_append_read_ack_close(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", LogSettings(waiting_bytes_max=1000)) as log:
            positions = await asyncio.gather(*(log.append(bytes([n]) * 400) for n in range(20)))
            assert len(set(positions)) == 20
            await log.append_many([b"x", b"y"])
            entries = [entry async for entry in log.read(min(positions), log.log.end())]
            assert len(entries) == 22
            async with await log.open_cursor("c") as cursor:
                assert len(await cursor.read(5)) == 5
                assert len([entry async for entry in cursor]) == 17
                await cursor.ack(entries[0].position, entries[3].position)
                await cursor.ack_each([entries[5].position])
                await cursor.mark_delete(entries[6].position)
                assert cursor.cursor.backlog() == 15
                assert await cursor.read_or_wait(timeout=0.01) == []
                waiting = asyncio.ensure_future(cursor.read_or_wait())
                await asyncio.sleep(0.01)
                await log.append(b"comes")
                assert [bytes(entry.data) for entry in await waiting] == [b"comes"]
                waiting = asyncio.ensure_future(cursor.read_or_wait())
                await asyncio.sleep(0.01)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            with pytest.raises(Closed):
                await cursor.read()
            log.log.terminate()
            with pytest.raises(Terminated):
                await log.append(b"too late")
        with pytest.raises(Closed):
            await log.append(b"closed")
        await log.close()

    asyncio.run(main())


def test_every_call_that_touches_the_disk_has_an_asynchronous_form(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log:
            positions = [await log.append(b"%d" % number, messages=number + 1) for number in range(10)]
            assert (await log.statistics()).messages == 55
            assert await log.set_properties({"a": "b", "c": "d"}) == await log.properties() == {"a": "b", "c": "d"}
            assert await log.find_newest(lambda entry: bytes(entry.data) <= b"4") == positions[4]
            assert await log.find_by_time(1 << 60) == positions[-1]
            cursor = await log.open_cursor("one")
            await log.open_cursor("two")
            assert [one.name for one in await log.cursors()] == ["one", "two"]
            await log.delete_cursor("two")
            assert [one.name for one in await log.cursors()] == ["one"]
            assert await log.expire_cursors(0.0) == []
            await cursor.mark_delete(positions[1], {"at": "two"})
            await cursor.set_properties({"x": "y"})
            assert await cursor.properties() == {"x": "y"}
            assert (await cursor.backlog(), await cursor.backlog_bytes(), await cursor.has_more()) == (8, 8, True)
            await cursor.skip(2)
            assert cursor.cursor.mark_delete_position == positions[3]
            nth = await cursor.nth(2)
            assert nth is not None
            assert nth.position == positions[5]
            assert [entry.position for entry in await cursor.replay(positions[3:5])] == [positions[4]]
            assert await cursor.find_newest(lambda entry: bytes(entry.data) <= b"6") == positions[6]
            assert await cursor.find_newest_by_time(0) is None
            await cursor.seek(positions[9])
            assert [entry.position for entry in await cursor.read()] == [positions[9]]
            await cursor.reset("earliest")
            assert await cursor.backlog() == 10
            await cursor.clear_backlog()
            assert await cursor.backlog() == 0
            await log.pin("kept", positions[0])
            with pytest.raises(BadInput, match="pinned by kept"):
                await log.clear()
            await log.unpin("kept")
            assert await log.roll()
            with pytest.raises(BadInput, match="nothing to skip"):
                await log.skip(1)
            assert await log.offload((tmp_path / "objects").as_uri()) == [1]
            await log.truncate(positions[5], force=True)
            assert log.log.end() == positions[5]
            assert await log.trim() == []
            await log.clear()
            assert (await log.statistics()).entries == 0
            last = await log.append(b"last")
            assert await log.terminate() == last
            await cursor.close()
        await aio.delete(tmp_path / "log")
        assert not list((tmp_path / "log").glob("ledger-*"))

    asyncio.run(main())


def test_no_call_of_a_log_or_cursor_that_waits_for_the_disk_is_left_out() -> None:
    """A new public method is either here too, or known to answer from memory."""
    memory = {  # of a log: answered from memory, or no call for a task
        "append_many", "attached", "check_owner", "check_truncate", "end", "error", "for_attached", "forked", "has_room",
        "is_calling_back", "maintain", "opened_cursors", "pins", "reader", "state", "terminated", "trim_soon", "wait_for_room", "open",
    }  # fmt: skip
    of_cursor = {
        "backlog_about", "call_at_close", "cancel_reads", "durable", "earliest_ms", "epoch", "failed", "follow_log",
        "give_back", "hole_count", "holes", "in_memory", "is_acked", "last_active_ms", "mark_delete_position",
        "mark_delete_properties", "nth_position", "open", "read_position", "record_bytes", "rewind", "stats",
        "taken_mark_delete", "unacked", "cursor", "forked",
    }  # fmt: skip

    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(Log) - {"delete"} - public(aio.AsyncLog) <= memory
    assert public(Cursor) - public(aio.AsyncCursor) <= of_cursor


def test_what_a_cancelled_task_opened_is_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the task is cancelled while the call runs, or just after it."""
    began, go_on = threading.Event(), threading.Event()
    plain = Log._open.__func__  # type: ignore[attr-defined]

    def slow(*arguments: object) -> object:
        began.set()
        assert go_on.wait(LIMIT_SECONDS)
        return plain(Log, *arguments)

    async def main() -> None:
        monkeypatch.setattr(Log, "_open", slow)
        opening = asyncio.ensure_future(aio.open(tmp_path / "log", SETTINGS))
        await asyncio.to_thread(began.wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        go_on.set()
        monkeypatch.undo()

    asyncio.run(main())
    with Log.open(tmp_path / "log", LogSettings(preallocate_bytes=8192)) as log:  # others are refused while it is open
        log.append(b"x").result(LIMIT_SECONDS)


def test_entries_that_a_cancelled_read_took_are_read_again(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        async with await aio.open(tmp_path / "log", SETTINGS) as log, await log.open_cursor("c") as cursor:
            await log.append_many([b"%d" % number for number in range(3)])
            for waits in range(4):  # before it began, while it runs, after it is done
                reading = asyncio.ensure_future(cursor.read_or_wait(timeout=1))
                for _ in range(waits):
                    await asyncio.sleep(0.01)
                reading.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    if await reading:
                        cursor.cursor.rewind()
                await asyncio.sleep(0.05)
            async for entry in cursor:
                assert bytes(entry.data) == b"0"
                break
            return [bytes(entry.data) for entry in await cursor.read()]

    assert asyncio.run(main()) == [b"1", b"2"]


def test_there_is_more_where_an_iteration_or_a_cancelled_read_left_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads while there is more would take the log for read."""

    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log, await log.open_cursor("c") as cursor:
            await log.append_many([b"%d" % number for number in range(3)])
            async for entry in cursor:
                assert bytes(entry.data) == b"0"
                break
            assert await cursor.has_more()
            assert [bytes(entry.data) async for entry in cursor] == [b"1", b"2"]
            assert not await cursor.has_more()
            await cursor.seek("earliest")
            read, reading, go = cursor.cursor.read, threading.Event(), threading.Event()

            def slowly(*arguments: Any, **named: Any) -> Batch:
                entries = read(*arguments, **named)
                reading.set()
                assert go.wait(LIMIT_SECONDS)
                return entries

            monkeypatch.setattr(cursor.cursor, "read", slowly)
            cancelled = asyncio.create_task(cursor.read())
            assert await asyncio.to_thread(reading.wait, LIMIT_SECONDS)
            cancelled.cancel()
            await asyncio.gather(cancelled, return_exceptions=True)
            more = asyncio.create_task(cursor.has_more())
            await asyncio.sleep(0.05)
            go.set()
            assert await more
            assert [bytes(entry.data) for entry in await cursor.read()] == [b"0", b"1", b"2"]

    asyncio.run(main())


def test_however_many_tasks_wait_the_pool_of_threads_is_free(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log:
            cursors = [await log.open_cursor(f"c{n}") for n in range(40)]  # more than the pool has threads
            waiting = [asyncio.create_task(cursor.read_or_wait()) for cursor in cursors]
            await asyncio.sleep(0.2)
            assert (await asyncio.wait_for(log.statistics(), LIMIT_SECONDS)).entries == 0
            position = await log.append(b"for all")
            for entries in await asyncio.wait_for(asyncio.gather(*waiting), LIMIT_SECONDS):
                assert [entry.position for entry in entries] == [position]
            assert await cursors[0].read_or_wait(timeout=0.05) == []

    asyncio.run(main())


def test_a_cancelled_wait_ends_no_other_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log:
            cursor = await log.open_cursor("c")
            one, other = (asyncio.create_task(cursor.read_or_wait()) for _ in range(2))
            await asyncio.sleep(0.05)
            one.cancel()
            await asyncio.sleep(0.3)
            assert one.cancelled()
            assert not other.done()
            await log.append(b"x")
            assert len(await asyncio.wait_for(other, LIMIT_SECONDS)) == 1
            waiting = asyncio.create_task(cursor.read_or_wait())
            await asyncio.sleep(0.05)
            await cursor.close()
            with pytest.raises(Closed):
                await asyncio.wait_for(waiting, LIMIT_SECONDS)

    asyncio.run(main())


def test_a_cancelled_open_closes_no_cursor_that_another_task_has(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log:
            cursor = await log.open_cursor("c")
            again = asyncio.create_task(log.open_cursor("c"))
            await asyncio.sleep(0)
            again.cancel()
            await asyncio.gather(again, return_exceptions=True)
            await asyncio.sleep(0.2)
            assert await cursor.read() == []
            cursor.cursor.withdraw()  # the last one that has it
            with pytest.raises(Closed):
                await cursor.read()
            assert await (await log.open_cursor("c")).read() == []

    asyncio.run(main())


def test_no_iteration_holds_many_large_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log:
            for _ in range(12):
                await log.append(bytes(1 << 20))
            async with await log.open_cursor("reader") as cursor:
                await anext(cursor)
                assert cursor.cursor.read_position.entry_id <= 5
                assert len([entry async for entry in cursor]) == 11
            read, taken = log.log.read, 0

            def counted(start: Position, end: Position) -> Iterator[Entry]:
                nonlocal taken
                for entry in read(start, end):
                    taken += 1
                    yield entry

            monkeypatch.setattr(log.log, "read", counted)
            entries = log.read(log.log.reader().first, log.log.end())
            await anext(entries)
            assert taken <= 5
            assert len([entry async for entry in entries]) == 11

    asyncio.run(main())


def test_an_iteration_ends_with_its_cursor(tmp_path: Path) -> None:
    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log:
            await log.append_many([b"x"] * 5)
            cursor = await log.open_cursor("c")
            await anext(cursor)
            await cursor.close()
            with pytest.raises(Closed):
                await anext(cursor)

    asyncio.run(main())


class _HeldReads:
    """The first read of a cursor takes its entries, and waits for `go` before it gives them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.taken = threading.Event(), threading.Event()
        read = Cursor.read

        def held(cursor: Cursor, *arguments: Any, **named: Any) -> Batch:
            batch = read(cursor, *arguments, **named)
            if not self.taken.is_set():
                self.taken.set()
                assert self.go.wait(LIMIT_SECONDS)
            return batch

        monkeypatch.setattr(Cursor, "read", held)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self.taken.wait, LIMIT_SECONDS)


def test_tasks_that_share_an_iteration_miss_nothing_when_they_leave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = _HeldReads(monkeypatch)

    async def main() -> list[int]:
        async with await aio.open(tmp_path / "log", SETTINGS) as log, await log.open_cursor("c") as cursor:
            await log.append_many([b"x"] * 600)
            first, second = asyncio.ensure_future(anext(cursor)), asyncio.ensure_future(anext(cursor))
            await reads.reached()
            done, _ = await asyncio.wait([second], timeout=0.2)  # it may not overtake the batch before
            assert not done
            reads.go.set()
            given = [await first, await second, await anext(cursor)]
            return [entry.position.entry_id for entry in (*given, *await cursor.read(1000))]

    assert asyncio.run(main()) == list(range(600))


@pytest.mark.parametrize("begun", [True, False])
def test_a_read_after_a_cancelled_one_gives_the_same_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Not later ones first: who marks those as done would never see the earlier ones."""
    reads = _HeldReads(monkeypatch)

    async def main() -> list[list[int]]:
        async with await aio.open(tmp_path / "log", SETTINGS) as log, await log.open_cursor("c") as cursor:
            await log.append_many([b"x"] * 9)
            reading = asyncio.ensure_future(cursor.read(3))
            if begun:
                await reads.reached()
            else:
                await asyncio.sleep(0)
            reading.cancel()
            later = [asyncio.ensure_future(cursor.read(3)) for _ in range(3)]
            await asyncio.sleep(0)  # they are handed to the pool while the first one still reads
            reads.go.set()
            batches = await asyncio.wait_for(asyncio.gather(*later), LIMIT_SECONDS)
            return sorted([entry.position.entry_id for entry in batch] for batch in batches)

    assert asyncio.run(main()) == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_seek_stays_where_it_went_whatever_was_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    reads = _HeldReads(monkeypatch)

    async def main() -> list[int]:
        async with await aio.open(tmp_path / "log", SETTINGS) as log, await log.open_cursor("c") as cursor:
            await log.append_many([b"x"] * 600)
            reading = asyncio.ensure_future(cursor.read(10) if cancelled else anext(cursor))
            await reads.reached()
            await cursor.seek(Position(1, 590))
            if cancelled:
                reading.cancel()
            reads.go.set()
            given = [] if cancelled else [await reading]
            await asyncio.gather(reading, return_exceptions=True)
            await asyncio.sleep(0.2)  # what was cancelled is given back behind it
            return [entry.position.entry_id for entry in (*given, *await cursor.read(1000))]

    assert asyncio.run(main()) == list(range(590, 600))


def test_a_slow_read_holds_up_its_own_task_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, answer = threading.Event(), threading.Event()

    async def main() -> None:
        async with await aio.open(tmp_path / "log", SETTINGS) as log, await log.open_cursor("c") as cursor:
            await log.append_many([b"%d" % n for n in range(6)])
            assert [(await anext(cursor)).data for _ in range(2)] == [b"0", b"1"]
            entries = LogReader.entries

            def slow(reader: LogReader, first: Position, last: Position) -> Any:
                begun.set()
                assert answer.wait(10)  # by then only a loop that was held up has not answered
                return entries(reader, first, last)

            monkeypatch.setattr(LogReader, "entries", slow)
            first = asyncio.create_task(cursor.read(2))
            await asyncio.to_thread(begun.wait, LIMIT_SECONDS)
            second = asyncio.create_task(cursor.read(2))
            await asyncio.sleep(0)  # `second` begins; the disk answers only after that, and only if the loop goes on
            answer.set()
            batches = await asyncio.gather(first, second)
            assert sorted(entry.position.entry_id for batch in batches for entry in batch) == [2, 3, 4, 5]

    asyncio.run(main())
