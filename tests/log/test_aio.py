"""Answers under asyncio and concurrent.futures, and the log without threads of the caller's own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from pathlib import Path

import pytest

from penstock.errors import Closed, StorageFailed
from penstock.log import Log, LogSettings, Pending, Position, Terminated, aio

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
