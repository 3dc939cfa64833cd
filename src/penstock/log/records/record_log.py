"""The record log (docs/formats/record-log.md): one owner's small facts, committed in groups, compacted by rewriting.

Record numbers go on across rewrites. `rewrite` replaces every record appended before the call; records appended after
it follow. `compact` does the same while appends go on. A crash leaves the old generation or the new one, never a
mixture. Every open makes a generation of its own, so that a deposed owner writes into a file that nobody reads
(generations.py). All record logs of a process share a few threads (workers.py).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from penstock.arguments import check_callable, check_component, check_name, check_type, checked_path
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Closed, PenstockError, Unavailable, fresh
from penstock.files import REAL_FILES, Buffer, Files, typed_errors
from penstock.log.append.checking import checked_append, checked_pair, unwritable
from penstock.log.closed import closed_in_children
from penstock.log.frames.file_header import FILE_HEADER_BYTES, RECORD_LOG_MAGIC, corruption, read_file_header
from penstock.log.frames.format import Changes, FrameInfo, StateChange, decode_changes
from penstock.log.frames.reader import BadFrameAt, read_frames
from penstock.log.frames.writer import FrameWriter
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.records.group_commit import Builder, GroupCommit, Queued
from penstock.log.records.idle_file import IdleFile
from penstock.log.records.opening import Made, publish, take_over
from penstock.log.records.workers import CHORES, is_worker
from penstock.threads import start_thread

_logger = logging.getLogger(__name__)

_WAITING_BYTES_MAX = 64 << 20
# With more record logs than this open, each holds its two descriptors only during a commit; opening them costs far less
# than the commit's sync.
_KEEP_OPEN_MAX = 64


class Record(NamedTuple):
    """A record as it was appended."""

    number: int
    data: bytes
    changes: tuple[StateChange, ...] = ()
    wall_ms: int = 0


class _OpenCount:
    """How many record logs this process has open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def many(self) -> bool:
        return self._count > _KEEP_OPEN_MAX

    def add(self) -> None:
        with self._lock:
            self._count += 1

    def remove(self) -> None:
        with self._lock:
            self._count -= 1


_OPEN = _OpenCount()


class _Compaction:
    """A compaction under way. `tail` collects the records that are committed meanwhile."""

    def __init__(self, answer: Pending[int]) -> None:
        self.answer = answer
        self.tail: list[tuple[Sequence[Buffer], Changes, int]] = []

    def fail_with(self, step: Pending[int]) -> None:
        error = step.exception(0)
        if error is not None:
            self.answer.fail(error)


class RecordLog:
    """The owner's handle. Thread-safe."""

    def __init__(self, directory: Path, name: str, files: Files, clock: Clock, resources: contextlib.ExitStack) -> None:
        self._directory = directory
        self._name = name
        self._files = files
        self._clock = clock
        self._resources = resources
        owned = take_over(directory, name, files, clock, resources)
        self._generations, self._maker = owned.generations, owned.maker
        self._end_handle, self._end_file = owned.end_handle, owned.end_file
        self._writer = owned.writer
        self.uuid, self.epoch = owned.uuid, owned.writer.file_id
        self._compaction: _Compaction | None = None
        self._closed = False
        closed_in_children(self)
        self._commits: GroupCommit[int] = GroupCommit(
            f"record log {directory / name}", self._commit, _WAITING_BYTES_MAX, self._generations.check
        )

    @classmethod
    def open(cls, directory: Path, name: str, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK) -> RecordLog:
        """Becomes the owner. Raises `Unavailable` while another process is, `Corruption` where records are damaged."""
        directory = checked_path("the directory of a record log", directory)
        check_name("a record log", name)
        check_component("files", files, "make_directory")
        check_component("clock", clock, "wall_ms")
        with typed_errors(f"record log {directory / name}"), contextlib.ExitStack() as resources:
            files.make_directory(directory)
            resources.enter_context(files.lock(directory / f"{name}.lock"))
            log = cls(directory, name, files, clock, resources)
            log._resources = resources.pop_all()  # from here on close() releases them
        log._resources.callback(_OPEN.remove)
        _OPEN.add()
        log._release_files()
        return log

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more."""
        return self._commits.error

    @property
    def bytes(self) -> int:
        """Size of the generation in force: what a rewrite could save."""
        return self._writer.synced_end - FILE_HEADER_BYTES

    def append(
        self,
        data: Buffer | Sequence[Buffer],
        changes: Changes = (),
        *,
        wait: bool = True,
        encoded: bool = False,
    ) -> Pending[int]:
        """Appends a record; the result is its number, once it is durable. For `wait` and `encoded` see `Log.append`."""
        buffers, changes, size = checked_append(data, changes, encoded=encoded)
        return self._commits.submit(buffers, changes, size, wait=wait)

    def wait_for_room(self) -> None:
        """Returns once there is room for another append."""
        self._commits.wait_for_room()

    def append_built(self, build: Builder) -> Pending[int]:
        """Appends the record that `build` returns; it is called when the group is written. Never waits for room."""
        check_callable("build", build)
        return self._commits.submit(build, wait=False)

    def check_owner(self) -> None:
        """Raises `Fenced` where another owner came, which the lock prevents wherever locks hold."""
        self._generations.check()

    def records(self) -> Iterator[Record]:
        """Every durable record of the generation in force, in order."""
        self._check_open()
        return self._records()

    def _records(self) -> Iterator[Record]:
        writer = self._writer
        try:
            file = self._files.open(writer.file.path)
        except FileNotFoundError:
            self._generations.check()
            raise
        try:
            header = read_file_header(file, RECORD_LOG_MAGIC, self.uuid, writer.file_id)
            start, stop = FILE_HEADER_BYTES, writer.synced_end
            for frame in read_frames(file, writer.file_id, start, header.first_entry, stop):
                yield Record(
                    frame.header.entry_id,
                    bytes(frame.data),
                    decode_changes(frame.changes, frame.header.wall_ms),
                    frame.header.wall_ms,
                )
        except BadFrameAt as error:
            raise corruption(file.path, error.offset, error.reason) from error
        finally:
            file.close()

    def infos(self) -> Iterator[FrameInfo]:
        """As `records`, without the data, and addressed by position: what the state needs."""
        for number, data, changes, wall_ms in self.records():
            yield FrameInfo(Position(0, number), len(data), changes, wall_ms)

    def rewrite(self, records: Iterable[Record | tuple[Buffer, Changes]]) -> None:
        """Replaces every record appended so far by these; returns once they are durable."""
        self.rewrite_later(records).result()

    def rewrite_later(self, records: Iterable[Record | tuple[Buffer, Changes]]) -> Pending[int]:
        """As `rewrite`, in order with the appends, without waiting. Safe to call from a callback."""
        check_type("records", records, Iterable)
        taken: list[tuple[Sequence[Buffer], Changes]] = []
        size = 0
        for record in records:
            data, changes = (record.data, record.changes) if isinstance(record, Record) else checked_pair(record)
            buffers, changes, more = checked_append(data, changes)
            taken.append((buffers, changes))
            size += more
        return self._commits.submit((), (), size, lambda: self._rewrite(taken), wait=False)

    def compact(self, build: Builder) -> Pending[int]:
        """Replaces every record appended before it by the one that `build` returns, without holding up appends.

        `build` is called between two groups, on the thread that commits. A compaction that fails leaves the records as
        they are. The caller makes sure that only one compaction or rewrite is under way at a time.
        """
        check_callable("build", build)
        compaction = _Compaction(Pending())

        def start() -> None:
            self._compaction = compaction
            snapshot, number = build(), self._writer.next_entry - 1
            try:
                CHORES.run(
                    lambda: self._prepare(compaction, snapshot, number), lambda error: self._give_up(compaction, error)
                )
            except Unavailable as error:
                self._give_up(compaction, error)

        self._commits.submit((), (), 0, start, wait=False).add_done_callback(compaction.fail_with)
        return compaction.answer

    def close(self) -> None:
        """Finishes what waits and gives up ownership. Raises what goes wrong meanwhile. Closing again does nothing.

        In a callback of an append, also of another record log, it returns at once, and the record log closes behind it: the
        thread of the callback must first finish what waits. What goes wrong then is in the program's log. Raises
        `Unavailable` there where the system gives no thread: then it stays open.
        """
        if not is_worker():
            self.close_here()
        elif not self._closed:
            start_thread(self._close_behind, f"close of {self._directory / self._name}", daemon=False)

    def _close_behind(self) -> None:
        try:
            self.close_here()
        except Exception:
            _logger.exception("the close of record log %s failed", self._directory / self._name)

    def close_here(self) -> None:
        """As `close`, on this thread whichever it is: for who opened it there, and shared it with nobody."""
        already_failed = self._commits.error
        if not self._closed:
            with contextlib.suppress(PenstockError):  # as a task, because a stall of the disk is noticed there
                self._commits.submit((), (), 0, self._end_file.sync, wait=False)
        self._commits.close()
        if self._closed:
            return
        self._closed = True
        if self._compaction is not None:
            self._compaction.answer.exception()  # waits until its generation is in force or given up
        self._writer.file.close()
        self._resources.close()
        error = self._commits.error
        if error is not None and error is not already_failed:
            raise fresh(error)

    def forked(self) -> None:
        """In a forked child, which does not own it: `close` does nothing."""
        self._closed = True

    def __enter__(self) -> RecordLog:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"record log {self._directory / self._name} is closed")

    # -- on the thread that commits ------------------------------------------------------------------------------

    def _commit(self, batch: list[Queued]) -> list[int | BaseException]:
        results: list[int | BaseException] = []
        self._generations.check()
        wall_ms = self._clock.wall_ms()
        writer, compaction = self._writer, self._compaction
        first = writer.next_entry
        for item in batch:
            data = (item.data(),) if callable(item.data) else item.data
            try:
                writer.add(data, item.changes, wall_ms)
            except Exception as error:  # nothing of this record was written, so it fails alone
                results.append(unwritable(error))
                continue
            results.append(writer.next_entry - 1)
            if compaction is not None:
                compaction.tail.append((data, item.changes, wall_ms))
        if writer.next_entry == first:
            return results
        writer.sync()
        self._generations.check()
        publish(self._end_file, writer)
        self._release_files()
        return results

    def _release_files(self) -> None:
        """Where many record logs are open, descriptors are held only during a commit."""
        if _OPEN.many:
            self._end_handle.release()
            self._writer_file(self._writer).release()

    @staticmethod
    def _writer_file(writer: FrameWriter) -> IdleFile:
        assert isinstance(writer.file, IdleFile)
        return writer.file

    def _rewrite(self, records: list[tuple[Sequence[Buffer], Changes]]) -> None:
        """(1) a new generation, written and synced; (2) its header; (3) slot; (4) the old one is removed."""
        number, file = self._generations.claim_next()
        made = self._maker.begin(number, file, self._writer.next_entry, self.uuid, self.epoch)
        for data, changes in records:
            made.writer.add(data, changes, self._clock.wall_ms())
        self._maker.finish(made)
        self._take_into_force(made)

    def _take_into_force(self, made: Made) -> None:
        old = self._writer
        self._maker.write_header(made)
        publish(self._end_file, made.writer)
        self._writer = made.writer
        old.file.close()
        self._generations.remove(range(old.file_id, made.writer.file_id))

    def _prepare(self, compaction: _Compaction, snapshot: Buffer, number: int) -> None:
        """On the chores' thread, while commits go on: writes and syncs a new generation with the snapshot, then has
        `_switch` called in order with the commits."""
        claimed = 0
        made: Made | None = None
        try:
            claimed, file = self._generations.claim_next()
            made = self._maker.begin(claimed, file, number, self.uuid, self.epoch)
            made.writer.add((snapshot,), (), self._clock.wall_ms())
            self._maker.finish(made)
            if self._compaction is not compaction:
                raise Closed(f"record log {self._directory / self._name}: the compaction was given up")
            switch, prepared = self._switch, made
            self._commits.submit((), (), 0, lambda: switch(compaction, prepared), wait=False).add_done_callback(
                compaction.fail_with
            )
        except Exception as error:  # the disk is full, or the record log was closed meanwhile
            if made is not None:
                made.writer.file.close()
            if claimed:
                self._generations.give_up(claimed)
            self._give_up(compaction, error)

    def _give_up(self, compaction: _Compaction, error: BaseException) -> None:
        """The compaction failed; the old generation stays in force."""
        if self._compaction is compaction:
            self._compaction = None
            compaction.answer.fail(error)

    def _switch(self, compaction: _Compaction, made: Made) -> None:
        """Adds what was committed since the snapshot, and brings the new generation into force."""
        writer = made.writer
        if self._compaction is not compaction:  # given up meanwhile: its tail lacks later records
            writer.file.close()
            self._generations.give_up(writer.file_id)
            return
        for data, changes, wall_ms in compaction.tail:
            writer.add(data, changes, wall_ms)
        if compaction.tail:
            writer.sync()
        self._take_into_force(made)
        self._compaction = None
        compaction.answer.complete(writer.next_entry - 1)
