"""The log for asyncio: `open`, append, read, ack and close that never hold up the event loop.

    async with await aio.open(directory) as log:
        position = await log.append(b"entry")
        async with await log.open_cursor("reader") as cursor:
            async for entry in cursor:
                await cursor.ack(entry.position)

Appends and acks are awaited as they are (`Pending` is awaitable). What touches the disk on the caller's thread runs on
the event loop's own pool of threads. Everything else is a call on `log` or `cursor`, the plain handles: what those
promise holds here too, errors included.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.files import REAL_FILES, Buffer, Files
from penstock.log.append.request import Span
from penstock.log.cursors.cursor import Cursor
from penstock.log.cursors.opening import Start
from penstock.log.frames.format import Changes, Entry
from penstock.log.log import Log
from penstock.log.position import Position
from penstock.log.settings import LogSettings
from penstock.metadata import MetadataStore

_BATCH_ENTRIES = 256  # read at once on a thread of the pool


async def open(
    directory: Path,
    settings: LogSettings | None = None,
    files: Files = REAL_FILES,
    clock: Clock = SYSTEM_CLOCK,
    metadata: MetadataStore | None = None,
) -> AsyncLog:
    """Becomes the owner, as `Log.open`."""
    return AsyncLog(await asyncio.to_thread(Log.open, directory, settings, files, clock, metadata))


class AsyncLog:
    """A handle on a log for tasks of one event loop. `log` is the plain one."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def append(self, data: Buffer | Sequence[Buffer], changes: Changes = ()) -> Position:
        """Where the entry is, once it is durable. A cancelled task does not call the entry back."""
        await self._room()
        return await self.log.append(data, changes, wait=False)

    async def append_many(self, entries: Sequence[Buffer]) -> Span:
        """As `append`, for entries one after the other."""
        await self._room()
        return await self.log.append_many(entries, wait=False)

    async def read(self, start: Position, end: Position) -> AsyncIterator[Entry]:
        """The durable entries from `start` to `end`, both included."""
        entries = await asyncio.to_thread(self.log.read, start, end)
        while batch := await asyncio.to_thread(lambda: list(islice(entries, _BATCH_ENTRIES))):
            for entry in batch:
                yield entry

    async def open_cursor(self, name: str, start: Start = "earliest", *, durable: bool = True) -> AsyncCursor:
        """As `Log.open_cursor`."""
        return AsyncCursor(await asyncio.to_thread(self.log.open_cursor, name, start, durable=durable))

    async def close(self) -> None:
        """Gives up this handle, as `Log.close`."""
        await asyncio.to_thread(self.log.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _room(self) -> None:
        if not self.log.has_room():
            await asyncio.to_thread(self.log.wait_for_room)


class AsyncCursor:
    """A cursor for tasks of one event loop. `cursor` is the plain one."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor

    async def read(self, max_entries: int = 100, max_bytes: int | None = None) -> list[Entry]:
        """The next entries that are not acked; empty where there is none now."""
        return await asyncio.to_thread(self.cursor.read, max_entries, max_bytes)

    async def read_or_wait(
        self, max_entries: int = 100, max_bytes: int | None = None, timeout: float | None = None
    ) -> list[Entry]:
        """As `read`, and waits while there is nothing. A task that is cancelled meanwhile ends the wait."""
        try:
            return await asyncio.to_thread(self.cursor.read_or_wait, max_entries, max_bytes, timeout)
        except asyncio.CancelledError:
            self.cursor.cancel_reads()
            raise

    async def ack(self, first: Position, last: Position | None = None) -> None:
        """Once the ack is durable, as `Cursor.ack`."""
        await self.cursor.ack(first, last)

    async def ack_each(self, positions: Iterable[Position]) -> None:
        await self.cursor.ack_each(positions)

    async def mark_delete(self, position: Position) -> None:
        await self.cursor.mark_delete(position)

    async def close(self) -> None:
        """Finishes the acks on their way and gives up the cursor."""
        await asyncio.to_thread(self.cursor.close)

    async def __aiter__(self) -> AsyncIterator[Entry]:
        """The entries that are not acked, up to the end of the log as it is by then."""
        while batch := await self.read(_BATCH_ENTRIES):
            for entry in batch:
                yield entry

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
