"""The record log (docs/formats/record-log.md): one owner's small facts, group committed, compacted by rewriting.

Records are numbered across rewrites. What `rewrite` gets replaces every record appended before it; records appended
after the call follow. `compact` does the same while appends go on. A crash leaves the old generation or the new one,
never a mixture. Every open makes a generation of its own, so that an older owner, asleep or not, writes where nobody looks
(record_generations.py). All record logs of a process share a few threads (workers.py).
"""

from __future__ import annotations

import contextlib
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, Closed, Corruption, PenstockError, Unavailable
from penstock.files import REAL_FILES, Buffer, File, Files, typed_errors
from penstock.log.file_header import FILE_HEADER_BYTES, RECORD_LOG_MAGIC, FileHeader, corruption, read_file_header
from penstock.log.frame import BODY_BYTES_MAX, Changes, FrameInfo, StateChange, decode_changes, total_bytes
from penstock.log.frame_reader import BadFrameAt, find_end, read_frames
from penstock.log.frame_writer import FrameWriter
from penstock.log.pending import Pending
from penstock.log.pooled_commit import Builder, PooledCommit, Queued
from penstock.log.position import Position
from penstock.log.record_generations import (
    Generations,
    Identity,
    InForce,
    find_in_force,
    read_identity,
    write_identity,
)
from penstock.log.resting_file import RestingFile
from penstock.log.synced import EndFile
from penstock.log.workers import CHORES

_WAITING_BYTES_MAX = 64 << 20
_AWAKE_MAX = (
    64  # record logs that keep their two descriptors; opening them for each commit costs far less than its sync
)
_COPY_BYTES = 8 << 20  # how much of the old generation is in memory while it is copied
_ATTEMPTS_MAX = 20
_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


class Record(NamedTuple):
    """What was appended."""

    number: int
    data: bytes
    changes: tuple[StateChange, ...] = ()
    wall_ms: int = 0


class _Open:
    """How many record logs this process has open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    @property
    def many(self) -> bool:
        return self._count > _AWAKE_MAX

    def add(self) -> None:
        with self._lock:
            self._count += 1

    def remove(self) -> None:
        with self._lock:
            self._count -= 1


_OPEN = _Open()


class _Compaction:
    """One that is under way; `tail` gets what is committed beside it."""

    def __init__(self, answer: Pending[int]) -> None:
        self.answer = answer
        self.tail: list[tuple[Sequence[Buffer], Changes, int]] = []

    def fail_with(self, step: Pending[int]) -> None:
        error = step.exception(0)
        if error is not None:
            self.answer.fail(error)


class _Made(NamedTuple):
    """A generation that this owner made, and the header that will bring it into force."""

    writer: FrameWriter
    header: FileHeader


class RecordLog:
    """The owner's handle. Thread-safe."""

    def __init__(self, directory: Path, name: str, files: Files, clock: Clock, resources: contextlib.ExitStack) -> None:
        self._directory = directory
        self._name = name
        self._files = files
        self._clock = clock
        self._resources = resources
        self._generations = Generations(files, directory, name)
        self.uuid, writer = self._take_over()
        self.epoch = self._generations.newest
        self._writer = writer
        self._compaction: _Compaction | None = None
        self._closed = False
        self._commits: PooledCommit[int] = PooledCommit(
            f"record log {directory / name}", self._commit, _WAITING_BYTES_MAX
        )

    @classmethod
    def open(cls, directory: Path, name: str, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK) -> RecordLog:
        """Becomes the owner. Raises `Unavailable` while another process is, `Corruption` where durable bytes are damaged."""
        if not _NAME.fullmatch(name):
            raise BadInput(
                f"{name!r} cannot be the name of a record log", hint="letters, digits, dot, dash, underscore"
            )
        with typed_errors(f"record log {directory / name}"), contextlib.ExitStack() as resources:
            files.make_directory(directory)
            resources.enter_context(files.lock(directory / f"{name}.lock"))
            log = cls(directory, name, files, clock, resources)
            log._resources = resources.pop_all()  # from here on close() releases them
        log._resources.callback(_OPEN.remove)
        _OPEN.add()
        log._rest()
        return log

    @property
    def error(self) -> BaseException | None:
        """Why nothing can be appended any more."""
        return self._commits.error

    @property
    def bytes(self) -> int:
        """Size of the present generation: what a rewrite could save."""
        return self._writer.synced_end - FILE_HEADER_BYTES

    def append(self, data: Buffer | Sequence[Buffer], changes: Changes = (), *, wait: bool = True) -> Pending[int]:
        """Appends a record; its number comes once it is durable. As for `wait`, see `Log.append`."""
        buffers = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
        size = sum(len(buffer) for buffer in buffers) + total_bytes(changes)
        if size > BODY_BYTES_MAX:
            raise BadInput(f"a record of {size} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
        return self._commits.submit(buffers, changes, size, wait=wait)

    def wait_for_room(self) -> None:
        """Returns once less waits than the limit."""
        self._commits.wait_for_room()

    def append_built(self, build: Builder) -> Pending[int]:
        """Appends the record that `build` gives when its group is written. Never waits."""
        return self._commits.submit(build, wait=False)

    def records(self) -> Iterator[Record]:
        """Every durable record of the present generation, in order."""
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
        """As `records`, addressed by position, for those who want state alone."""
        for number, data, changes, wall_ms in self.records():
            yield FrameInfo(Position(0, number), len(data), changes, wall_ms)

    def rewrite(self, records: Iterable[Record | tuple[Buffer, Changes]]) -> None:
        """Replaces every record appended so far by these; returns once they are durable."""
        self.rewrite_later(records).result()

    def rewrite_later(self, records: Iterable[Record | tuple[Buffer, Changes]]) -> Pending[int]:
        """As `rewrite`, in order with the appends, without waiting. Safe to call from a callback."""
        taken: list[tuple[Sequence[Buffer], Changes]] = []
        size = 0
        for record in records:
            data, changes = (record.data, record.changes) if isinstance(record, Record) else record
            taken.append(((data,), changes if isinstance(changes, bytes) else tuple(changes)))
            size += len(data) + total_bytes(changes)
        return self._commits.submit((), (), size, lambda: self._rewrite(taken), wait=False)

    def compact(self, build: Builder) -> Pending[int]:
        """Replaces every record before it by the one that `build` gives, without holding up appends.

        `build` is called between two groups, on the thread that commits. A compaction that fails leaves the records as
        they are. One at a time, and none beside a rewrite: the caller sees to that.
        """
        compaction = _Compaction(Pending())

        def start() -> None:
            self._compaction = compaction
            snapshot, number = build(), self._writer.next_entry - 1
            CHORES.run(
                lambda: self._prepare(compaction, snapshot, number), lambda error: self._give_up(compaction, error)
            )

        self._commits.submit((), (), 0, start, wait=False).add_done_callback(compaction.fail_with)
        return compaction.answer

    def close(self) -> None:
        """Finishes what waits and gives up ownership. Raises what went wrong at the last moment."""
        already_failed = self._commits.error
        if not self._closed:
            with contextlib.suppress(PenstockError):  # on the lane, where a disk that does not answer is noticed
                self._commits.submit((), (), 0, self._end_file.sync, wait=False)
        self._commits.close()
        if self._closed:
            return
        self._closed = True
        if self._compaction is not None:
            self._compaction.answer.exception()  # its file must be gone, or in force, before another owner comes
        self._writer.file.close()
        self._resources.close()
        error = self._commits.error
        if error is not None and error is not already_failed:
            raise error

    # -- the writer thread ---------------------------------------------------------------------------------------

    def _commit(self, batch: list[Queued]) -> list[int]:
        self._generations.check()
        wall_ms = self._clock.wall_ms()
        writer, compaction = self._writer, self._compaction
        first = writer.next_entry
        for item in batch:
            data = (item.data(),) if callable(item.data) else item.data
            writer.add(data, item.changes, wall_ms)
            if compaction is not None:
                compaction.tail.append((data, item.changes, wall_ms))
        writer.sync()
        self._generations.check()
        self._publish(writer)
        self._rest()
        return list(range(first, writer.next_entry))

    def _rest(self) -> None:
        """Where there are many record logs, a descriptor is held for the time of a commit alone."""
        if _OPEN.many:
            self._end_handle.rest()
            self._writer_file(self._writer).rest()

    @staticmethod
    def _writer_file(writer: FrameWriter) -> RestingFile:
        assert isinstance(writer.file, RestingFile)
        return writer.file

    def _publish(self, writer: FrameWriter) -> None:
        self._end_file.publish(writer.file_id, writer.synced_end, Position(writer.file_id, writer.next_entry - 1))

    def _rewrite(self, records: list[tuple[Sequence[Buffer], Changes]]) -> None:
        """(1) a new generation, written and synced, and its name; (2) its header; (3) slot; (4) the old one is removed."""
        number, file = self._generations.claim_next()
        made = self._begin(number, file, self._writer.next_entry)
        for data, changes in records:
            made.writer.add(data, changes, self._clock.wall_ms())
        self._finish(made)
        self._take_into_force(made)

    def _take_into_force(self, made: _Made) -> None:
        old = self._writer
        self._write_header(made)
        self._publish(made.writer)
        self._writer = made.writer
        old.file.close()
        self._generations.remove(range(old.file_id, made.writer.file_id))

    def _prepare(self, compaction: _Compaction, snapshot: Buffer, number: int) -> None:
        """Beside the commits: a new generation with the snapshot, synced. Then `_switch`, in order with them."""
        claimed = 0
        made: _Made | None = None
        try:
            claimed, file = self._generations.claim_next()
            made = self._begin(claimed, file, number)
            made.writer.add((snapshot,), (), self._clock.wall_ms())
            self._finish(made)
            if self._compaction is not compaction:
                raise Closed(f"record log {self._directory / self._name}: the compaction was given up")
            switch, prepared = self._switch, made
            self._commits.submit((), (), 0, lambda: switch(compaction, prepared), wait=False).add_done_callback(
                compaction.fail_with
            )
        except Exception as error:  # no room, or closed meanwhile: the old generation goes on
            if made is not None:
                made.writer.file.close()
            if claimed:
                self._generations.give_up(claimed)
            self._give_up(compaction, error)

    def _give_up(self, compaction: _Compaction, error: BaseException) -> None:
        """The old generation goes on."""
        if self._compaction is compaction:
            self._compaction = None
            compaction.answer.fail(error)

    def _switch(self, compaction: _Compaction, made: _Made) -> None:
        writer = made.writer
        if self._compaction is not compaction:  # given up meanwhile: its tail is not whole
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

    # -- open ----------------------------------------------------------------------------------------------------

    def _take_over(self) -> tuple[uuid.UUID, FrameWriter]:
        """The steps of the format: a generation of our own is in force when it returns."""
        try:
            identity = read_identity(self._files, self._directory, self._name)
        except FileNotFoundError:
            return self._create()
        if not self._files.exists(self._path("end")):
            raise Corruption(f"{self._path('end')} is missing", hint="nothing was changed; restore it from a copy")
        self._open_end()
        if identity.as_of(self._end_file.read()) is not identity:
            identity = self._leave_format_1(identity)
        for _ in range(_ATTEMPTS_MAX):
            with contextlib.suppress(FileExistsError, FileNotFoundError):  # another owner moved on at this moment
                return identity.uuid, self._succeed(identity)
        raise Unavailable(f"{self._directory / self._name}: others open it all the time", hint="try again")

    def _succeed(self, identity: Identity) -> FrameWriter:
        numbers, found = find_in_force(self._generations, identity, self._end_file.read())
        try:
            size = found.file.size()
            end = find_end(found.file, found.number, found.header.first_entry, found.synced_end)[0]
            # Damage was told before anything was changed. From here on the old owner is deposed; what it wrote before counts.
            if numbers[-1] != found.number:
                self._files.sync_directory(self._directory)  # a claim is durable before the one after it is made
            claimed = self._claim_after(numbers, identity)
            checked = found.number
            found.file.close()
            found = find_in_force(self._generations, identity, self._end_file.read())[1]
            if found.number != checked or found.file.size() != size:
                end = find_end(found.file, found.number, found.header.first_entry, found.synced_end)[0]
            made = self._begin(self._generations.newest, claimed, found.header.first_entry, identity.uuid)
            self._copy(found, end, made.writer)
        finally:
            found.file.close()
        self._finish(made)
        self._write_header(made)
        self._end_file.own(made.writer.file_id)
        self._publish(made.writer)
        if identity.format == 1:
            self._end_file.sync()  # its numbers need not be consecutive with ours: the slot must not be lost any more
            self._leave_format_1(identity)
        else:
            self._generations.remove(numbers)
        return made.writer

    def _claim_after(self, numbers: range, identity: Identity) -> File:
        if identity.format > 1:
            return self._generations.claim(numbers[-1] + 1)
        number = max(numbers[-1], identity.epoch) + 1
        while True:
            with contextlib.suppress(FileExistsError):  # a claim that was cut
                return self._generations.claim_first(number)
            number += 1

    def _leave_format_1(self, identity: Identity) -> Identity:
        """A generation of ours is in force and its slot durable: the others go, then `.current` says the new format."""
        slot = self._end_file.read()
        assert slot is not None
        self._generations.remove([number for number in self._generations.listed() if number < slot.file_id])
        self._files.sync_directory(self._directory)
        write_identity(self._files, self._directory, self._name, identity.uuid)
        return Identity(identity.uuid)

    @staticmethod
    def _copy(found: InForce, end: int, writer: FrameWriter) -> None:
        try:
            for frame in read_frames(found.file, found.number, FILE_HEADER_BYTES, found.header.first_entry, end):
                writer.add((frame.data,), frame.changes, frame.header.wall_ms)
                if writer.end - writer.synced_end > _COPY_BYTES:
                    writer.sync()
        except BadFrameAt as error:
            raise corruption(found.file.path, error.offset, error.reason) from error

    def _create(self) -> tuple[uuid.UUID, FrameWriter]:
        leftovers: list[int] = []
        fresh = not self._files.exists(self._path("end"))
        if fresh:
            EndFile.create(self._files, self._path("end"), sync_name=False)  # it is synced with the generation's
        self._open_end()
        if not fresh:
            if self._end_file.read() is not None:
                raise self._generations.current_lost(self._path("end").name)
            leftovers = self._generations.refuse_lost()
        number = leftovers[-1] + 1 if leftovers else max(self._clock.wall_ms(), 1)
        try:
            file = self._generations.claim_first(number)
        except FileExistsError:  # a cut may have left it without `.end`
            leftovers = self._generations.refuse_lost()
            number = leftovers[-1] + 1
            file = self._generations.claim_first(number)
        made = self._begin(number, file, 0, uuid.uuid4())
        self._finish(made)
        self._write_header(made)
        write_identity(self._files, self._directory, self._name, made.header.uuid)
        self._end_file.own(number)
        self._publish(made.writer)
        self._generations.remove(leftovers)
        return made.header.uuid, made.writer

    def _open_end(self) -> None:
        self._end_handle = RestingFile(self._files, self._files.open(self._path("end"), writable=True))
        self._end_file = EndFile(self._end_handle)
        self._resources.callback(self._end_file.close)

    # -- generations ---------------------------------------------------------------------------------------------

    def _begin(self, generation: int, file: File, first_entry: int, identity: uuid.UUID | None = None) -> _Made:
        """A claimed generation, ready for frames. It has no header yet: a cut leaves nothing that counts."""
        epoch = generation if identity is not None else self.epoch
        header = FileHeader(identity or self.uuid, generation, epoch, self._clock.wall_ms(), first_entry)
        resting = RestingFile(self._files, file, FILE_HEADER_BYTES)
        return _Made(FrameWriter(resting, generation, epoch, next_entry=first_entry, end=FILE_HEADER_BYTES), header)

    def _finish(self, made: _Made) -> None:
        """Its frames and its name are durable."""
        if made.writer.end > made.writer.synced_end:
            made.writer.sync()
        self._files.sync_directory(self._directory)

    def _write_header(self, made: _Made) -> None:
        """From here on it counts, unless another owner came."""
        made.writer.file.write_at(0, made.header.encode(RECORD_LOG_MAGIC))
        made.writer.file.datasync()
        self._generations.check()

    def _path(self, kind: str) -> Path:
        return self._directory / f"{self._name}.{kind}"
