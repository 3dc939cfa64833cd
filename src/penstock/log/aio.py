"""The log for asyncio: every call of a log and a cursor that may touch the disk, without holding up the event loop.

    async with await aio.open(directory) as log:
        position = await log.append(b"entry")
        async with await log.open_cursor("reader") as cursor:
            async for entry in cursor:
                await cursor.ack(entry.position)

        await log.set_properties({"made by": "me"})
        newest = await log.find_newest(lambda entry: entry.data[0] < 7)

Appends and acks are awaited as they are (`Pending` is awaitable). What touches the disk on the caller's thread runs on
the event loop's own pool of threads; a predicate is called there too. Everything else is a call on `log` or `cursor`, the
plain handles: what those promise holds here too, errors included. A task that is cancelled takes nothing back: a call that
began goes on to its end. But what it would have given to that task is not lost: a log or cursor that was opened is closed
again, unless somebody else has it too, and entries that were read are read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.arguments import check_timeout
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed
from penstock.files import REAL_FILES, Buffer, Files
from penstock.log.append.request import Span
from penstock.log.cursors.cursor import Cursor
from penstock.log.cursors.opening import Start
from penstock.log.cursors.reading import Batch
from penstock.log.cursors.table import CursorInfo
from penstock.log.frames.format import Changes, Entry
from penstock.log.log import Log, LogStatistics
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.read.tail import Tail
from penstock.log.retention.skip import Skipping
from penstock.log.settings import LogSettings
from penstock.metadata import MetadataStore

T = TypeVar("T")

_BATCH_ENTRIES = 256  # read at once on a thread of the pool, up to the entry that reaches
_BATCH_BYTES = 4 << 20


async def open(
    directory: Path,
    settings: LogSettings | None = None,
    files: Files = REAL_FILES,
    clock: Clock = SYSTEM_CLOCK,
    metadata: MetadataStore | None = None,
) -> AsyncLog:
    """Becomes the owner, as `Log.open`."""
    call = partial(Log.open, directory, settings, files, clock, metadata)
    return AsyncLog(await _received(call, Log.close))


async def delete(
    directory: Path, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK, metadata: MetadataStore | None = None
) -> None:
    """Removes a log that nobody has open, as `Log.delete`."""
    await asyncio.to_thread(Log.delete, directory, files, clock, metadata)


async def _durable(call: Callable[..., Pending[T]], *arguments: Any, **named: Any) -> T:
    """The answer to a call that looks at the log before it asks for something durable."""
    return await (await asyncio.to_thread(call, *arguments, **named))


async def _received(call: Callable[[], T], give_back: Callable[[T], object]) -> T:
    """The answer of a call on a thread of the pool. Where the task was cancelled meanwhile, the answer is given back."""
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, call)

    def undo(done: asyncio.Future[T]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        try:
            loop.run_in_executor(None, give_back, done.result())
        except RuntimeError:  # the loop is ending, and takes no more work
            give_back(done.result())

    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(undo)
        raise


def _forget_error(done: asyncio.Future[Any]) -> None:
    """Of a call whose task was cancelled: else asyncio logs an error that nobody asked for."""
    if not done.cancelled():
        done.exception()


def _nothing() -> None:
    pass


async def _moved(tail: Tail, seen: int, seconds: float) -> None:
    """Returns when the end of the log moved since `seen`, or after so many seconds."""
    loop = asyncio.get_running_loop()
    moved = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits any more
            loop.call_soon_threadsafe(moved.set)

    tail.watch(wake)
    try:
        if tail.count == seen:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(moved.wait(), seconds)
    finally:
        tail.unwatch(wake)


def _next_of(entries: Iterator[Entry]) -> list[Entry]:
    batch: list[Entry] = []
    size = 0
    for entry in islice(entries, _BATCH_ENTRIES):
        batch.append(entry)
        size += len(entry.data)
        if size >= _BATCH_BYTES:
            break
    return batch


class AsyncLog:
    """A handle on a log for tasks of one event loop. `log` is the plain one."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def append(self, data: Buffer | Sequence[Buffer], changes: Changes = (), *, messages: int = 1) -> Position:
        """Where the entry is, once it is durable. A cancelled task does not call the entry back."""
        await self._room()
        return await self.log.append(data, changes, wait=False, messages=messages)

    async def append_many(self, entries: Sequence[Buffer]) -> Span:
        """As `append`, for entries one after the other."""
        await self._room()
        return await self.log.append_many(entries, wait=False)

    async def read(self, start: Position, end: Position) -> AsyncIterator[Entry]:
        """The durable entries from `start` to `end`, both included."""
        entries = await asyncio.to_thread(self.log.read, start, end)
        while batch := await asyncio.to_thread(_next_of, entries):
            for entry in batch:
                yield entry

    async def open_cursor(self, name: str, start: Start = "earliest", *, durable: bool = True) -> AsyncCursor:
        """As `Log.open_cursor`."""
        call = partial(self.log.open_cursor, name, start, durable=durable)
        return AsyncCursor(await _received(call, lambda cursor: cursor.withdraw()))

    async def cursors(self) -> list[CursorInfo]:
        return await asyncio.to_thread(self.log.cursors)

    async def delete_cursor(self, name: str) -> None:
        """As `Log.delete_cursor`."""
        await asyncio.to_thread(self.log.delete_cursor, name)

    async def expire_cursors(self, inactive_seconds: float) -> list[str]:
        """As `Log.expire_cursors`."""
        return await asyncio.to_thread(self.log.expire_cursors, inactive_seconds)

    async def find_newest(self, matches: Callable[[Entry], bool], after: Position | None = None) -> Position | None:
        """As `LogReader.find_newest`; `matches` is called on a thread of the pool."""
        return await asyncio.to_thread(lambda: self.log.reader().find_newest(matches, after))

    async def find_by_time(self, wall_ms: int) -> Position | None:
        """As `LogReader.find_by_time`."""
        return await asyncio.to_thread(lambda: self.log.reader().find_by_time(wall_ms))

    async def statistics(self) -> LogStatistics:
        return await asyncio.to_thread(self.log.statistics)

    async def properties(self) -> dict[str, str]:
        return self.log.properties()

    async def set_properties(self, properties: Mapping[str, str | None]) -> dict[str, str]:
        """As `Log.set_properties`: durable when it returns."""
        return await asyncio.to_thread(self.log.set_properties, properties)

    async def roll(self) -> bool:
        """As `Log.roll`."""
        return await asyncio.to_thread(self.log.roll)

    async def trim(self) -> list[int]:
        """As `Log.trim`."""
        return await asyncio.to_thread(self.log.trim)

    async def offload(self, url: str | None = None, *, keep_bytes: int = 0) -> list[int]:
        """As `Log.offload`."""
        return await asyncio.to_thread(self.log.offload, url, keep_bytes=keep_bytes)

    async def truncate(self, position: Position, *, own: Collection[str] = (), force: bool = False) -> list[int]:
        """As `Log.truncate`."""
        return await asyncio.to_thread(self.log.truncate, position, own=own, force=force)

    async def clear(self) -> None:
        """As `Log.clear`."""
        await asyncio.to_thread(self.log.clear)

    async def skip(self, ledger_id: int, *, dry_run: bool = False) -> Skipping:
        """As `Log.skip`."""
        return await asyncio.to_thread(self.log.skip, ledger_id, dry_run=dry_run)

    async def pin(self, name: str, position: Position) -> None:
        """As `Log.pin`: durable when it returns."""
        await asyncio.to_thread(self.log.pin, name, position)

    async def unpin(self, name: str) -> None:
        await asyncio.to_thread(self.log.unpin, name)

    async def terminate(self) -> Position:
        """As `Log.terminate`: the last entry."""
        return await asyncio.to_thread(self.log.terminate)

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
        while not self.log.has_room():  # again: other tasks may have been faster
            await asyncio.to_thread(self.log.wait_for_room)


class _Reading:
    """A read on a thread of the pool, for a task that may be cancelled at any moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._batch: Batch | None = None

    def cancel(self) -> Batch | None:
        """Nobody receives the answer. What was read already; None where the thread will give back what it reads."""
        with self._lock:
            self._cancelled = True
            return self._batch

    def finish(self, batch: Batch) -> bool:
        """Whether somebody receives it."""
        with self._lock:
            self._batch = batch
            return not self._cancelled

    @property
    def cancelled(self) -> bool:
        return self._cancelled


class AsyncCursor:
    """A cursor for tasks of one event loop. `cursor` is the plain one."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._ahead = Batch()  # read by an iteration
        self._given = 0  # of those
        # What was read for nobody: by whom it was left, and from where on it was not given.
        self._left: deque[tuple[Batch, int]] = deque()
        # Only threads of the pool wait for these two. The turn of one read after the other, and within it:
        self._turn = threading.Lock()
        self._giving_back = threading.Lock()
        self._reading_ahead = asyncio.Lock()  # one batch after the other, whichever tasks iterate

    async def read(self, max_entries: int = 100, max_bytes: int | None = None) -> Batch:
        """The next entries that are not acked; empty where there is none now."""
        self._leave_iteration()
        return await self._read(partial(self.cursor.read, max_entries, max_bytes))

    async def read_or_wait(
        self, max_entries: int = 100, max_bytes: int | None = None, timeout: float | None = None
    ) -> Batch:
        """As `read`, and waits while there is nothing: without a thread of the pool, however many tasks wait. A task that
        is cancelled meanwhile ends its own wait alone."""
        check_timeout(timeout)
        self._leave_iteration()
        deadline = None if timeout is None else time.monotonic() + timeout
        cursor, cancelled = self.cursor, self.cursor.cancelled
        for attempt in count():
            seen = cursor.tail.count
            entries = await self._read(partial(cursor.read_or_wait, max_entries, max_bytes, 0.0))
            left = None if deadline is None else deadline - time.monotonic()
            if entries or cursor.cancelled != cancelled or (left is not None and left <= 0):
                return entries
            await _moved(cursor.tail, seen, cursor.tail.poll_seconds(attempt, left))
        raise AssertionError("counting has no end")

    async def ack(self, first: Position, last: Position | None = None) -> None:
        """Once the ack is durable, as `Cursor.ack`."""
        await self.cursor.ack(first, last)

    async def ack_each(self, positions: Iterable[Position]) -> None:
        await self.cursor.ack_each(positions)

    async def mark_delete(self, position: Position, properties: Mapping[str, str] | None = None) -> None:
        """As `Cursor.mark_delete`."""
        await self.cursor.mark_delete(position, properties)

    async def skip(self, entries: int) -> None:
        """As `Cursor.skip`."""
        self._leave_iteration()
        await _durable(self._after_left, self.cursor.skip, entries)

    async def clear_backlog(self) -> None:
        """As `Cursor.clear_backlog`."""
        self._leave_iteration()
        await _durable(self._after_left, self.cursor.clear_backlog)

    async def reset(self, position: Position | str) -> None:
        """As `Cursor.reset`."""
        self._leave_iteration()
        await _durable(self._after_left, self.cursor.reset, position)

    async def seek(self, position: Position | str) -> None:
        """As `Cursor.seek`."""
        self._leave_iteration()
        await asyncio.to_thread(self._after_left, self.cursor.seek, position)

    async def properties(self) -> dict[str, str]:
        return self.cursor.properties()

    async def set_properties(self, properties: Mapping[str, str]) -> None:
        """As `Cursor.set_properties`: durable when it returns."""
        await self.cursor.set_properties(properties)

    async def backlog(self) -> int:
        """As `Cursor.backlog`."""
        return await asyncio.to_thread(self.cursor.backlog)

    async def backlog_bytes(self) -> int:
        """As `Cursor.backlog_bytes`."""
        return await asyncio.to_thread(self.cursor.backlog_bytes)

    async def has_more(self) -> bool:
        """Whether `read` would give something: also what an iteration read ahead and did not give yet."""
        cursor = self.cursor
        if self._ahead.moves == cursor.moves:
            ahead = islice(self._ahead, self._given, None)
            if any(not cursor.is_acked(entry.position) for entry in ahead):
                return True

        def look() -> bool:
            with self._turn:
                return self._after_left(cursor.has_more)

        return await asyncio.to_thread(look)

    async def nth(self, number: int) -> Entry | None:
        """As `Cursor.nth`."""
        return await asyncio.to_thread(self.cursor.nth, number)

    async def replay(self, positions: Iterable[Position]) -> list[Entry]:
        """As `Cursor.replay`."""
        return await asyncio.to_thread(self.cursor.replay, positions)

    async def find_newest(self, matches: Callable[[Entry], bool], *, everywhere: bool = False) -> Position | None:
        """As `Cursor.find_newest`; `matches` is called on a thread of the pool."""
        return await asyncio.to_thread(self.cursor.find_newest, matches, everywhere=everywhere)

    async def find_newest_by_time(self, wall_ms: int, *, everywhere: bool = False) -> Position | None:
        """As `Cursor.find_newest_by_time`."""
        return await asyncio.to_thread(self.cursor.find_newest_by_time, wall_ms, everywhere=everywhere)

    async def close(self) -> None:
        """Finishes the acks on their way and gives up the cursor."""
        await asyncio.to_thread(self.cursor.close)

    def __aiter__(self) -> Self:
        """The entries that are not acked, up to the end of the log as it is by then. Reads go on after the last one given."""
        return self

    async def __anext__(self) -> Entry:
        if self.cursor.failed:
            self._leave_iteration()  # a closed cursor says so; what another one read ahead is read again
        async with self._reading_ahead:
            while self._given == len(self._ahead) or self._ahead.moves != self.cursor.moves:
                ahead = await self.read(_BATCH_ENTRIES, _BATCH_BYTES)
                if not ahead:
                    raise StopAsyncIteration
                self._ahead, self._given = ahead, 0
            self._given += 1
            return self._ahead[self._given - 1]

    async def _read(self, read: Callable[[], Batch]) -> Batch:
        """The answer of a read on a thread of the pool. What it read for a task that was cancelled meanwhile is read again,
        and before anything that comes later: else a mark-delete of that would ack entries that nobody saw."""
        reading = _Reading()

        def run() -> Batch:
            with self._turn:
                if reading.cancelled:
                    return Batch()
                batch = self._after_left(read)
                if not reading.finish(batch):
                    self._give_back(batch)
                return batch

        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(None, run)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(_forget_error)
            if (batch := reading.cancel()) is not None:  # read, and not received any more
                self._left.append((batch, 0))
                with contextlib.suppress(RuntimeError):  # the loop is ending: the next call does it
                    loop.run_in_executor(None, self._after_left, _nothing)
            raise

    def _give_back(self, batch: Batch, given: int = 0) -> None:
        with contextlib.suppress(Closed):
            self.cursor.give_back(batch, given)

    def _leave_iteration(self) -> None:
        """What an iteration read ahead and did not give is read again. Given back by the next call on a thread of the pool:
        a read may be under way, which the event loop must not wait for."""
        if self._given < len(self._ahead):
            self._left.append((self._ahead, self._given))
        self._ahead, self._given = Batch(), 0

    def _after_left(self, call: Callable[..., T], *arguments: Any) -> T:
        """On a thread of the pool: the call, once everything is given back that was left before it."""
        with self._giving_back:
            while self._left:
                self._give_back(*self._left.popleft())
        return call(*arguments)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
