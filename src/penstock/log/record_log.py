"""The record log (docs/formats/record-log.md): one owner's small facts, group committed, compacted by rewriting.

Records are numbered across rewrites. What `rewrite` gets replaces every record appended before it; records appended
after the call follow. `compact` does the same while appends go on. A crash leaves the old generation or the new one,
never a mixture. All record logs of a process share a few threads (workers.py).
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, Corruption, NotSupported, PenstockError
from penstock.files import REAL_FILES, Buffer, Files, read_file, replace_file, write_again
from penstock.log.file_header import (
    FILE_HEADER_BYTES,
    RECORD_LOG_MAGIC,
    FileHeader,
    corruption,
    create_frame_file,
    read_file_header,
)
from penstock.log.frame import BODY_BYTES_MAX, Changes, FrameInfo, StateChange, decode_changes, total_bytes
from penstock.log.frame_reader import BadFrameAt, find_end, holds_frames, read_frames
from penstock.log.frame_writer import FrameWriter
from penstock.log.pending import Pending
from penstock.log.pooled_commit import Builder, PooledCommit, Queued
from penstock.log.position import Position
from penstock.log.resting_file import RestingFile
from penstock.log.synced import EndFile
from penstock.log.workers import CHORES

_WAITING_BYTES_MAX = 64 << 20
_AWAKE_MAX = (
    64  # record logs that keep their two descriptors; opening them for each commit costs far less than its sync
)
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


class RecordLog:
    """The owner's handle. Thread-safe."""

    def __init__(self, directory: Path, name: str, files: Files, clock: Clock, resources: contextlib.ExitStack) -> None:
        self._directory = directory
        self._name = name
        self._files = files
        self._clock = clock
        self._resources = resources
        self.uuid, self.epoch, self._generation, existed = self._take_over()
        self._end_handle = RestingFile(files, files.open(self._path("end"), writable=True))
        self._end_file = EndFile(self._end_handle)
        resources.callback(self._end_file.close)
        self._writer = self._recover(existed)
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
        with contextlib.ExitStack() as resources:
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
        file = self._files.open(writer.file.path)
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
            CHORES.run(lambda: self._prepare(compaction, snapshot, number))

        self._commits.submit((), (), 0, start, wait=False).add_done_callback(compaction.fail_with)
        return compaction.answer

    def close(self) -> None:
        """Finishes what waits and gives up ownership. Raises what went wrong at the last moment."""
        already_failed = self._commits.error
        self._commits.close()
        if self._closed:
            return
        self._closed = True
        if self._compaction is not None:
            self._compaction.answer.exception()  # its file must be gone, or in force, before another owner comes
        self._writer.file.close()
        try:
            if self._commits.error is None:
                self._end_file.sync()
        finally:
            self._resources.close()
        error = self._commits.error
        if error is not None and error is not already_failed:
            raise error

    # -- the writer thread ---------------------------------------------------------------------------------------

    def _commit(self, batch: list[Queued]) -> list[int]:
        self._end_file.check()
        wall_ms = self._clock.wall_ms()
        writer, compaction = self._writer, self._compaction
        first = writer.next_entry
        for item in batch:
            data = (item.data(),) if callable(item.data) else item.data
            writer.add(data, item.changes, wall_ms)
            if compaction is not None:
                compaction.tail.append((data, item.changes, wall_ms))
        writer.sync()
        self._end_file.check()
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
        """(1) a new generation, synced; (2) `.current` names it; (3) slot; (4) the old file is removed."""
        self._end_file.check()
        writer = self._create(self._generation + 1, self._writer.next_entry)
        for data, changes in records:
            writer.add(data, changes, self._clock.wall_ms())
        writer.sync()
        self._take_into_force(writer)

    def _take_into_force(self, writer: FrameWriter) -> None:
        old = self._writer
        self._end_file.check()
        self._write_current(writer.file_id)
        self._generation = writer.file_id
        self._publish(writer)
        self._writer = writer
        old.file.close()
        self._files.remove(old.file.path)

    def _prepare(self, compaction: _Compaction, snapshot: Buffer, number: int) -> None:
        """Beside the commits: a new generation with the snapshot, synced. Then `_switch`, in order with them."""
        generation = self._generation + 1
        writer: FrameWriter | None = None
        try:
            self._files.remove(self._generation_path(generation))
            writer = self._create(generation, number)
            writer.add((snapshot,), (), self._clock.wall_ms())
            writer.sync()
            switch, prepared = self._switch, writer
            self._commits.submit((), (), 0, lambda: switch(compaction, prepared), wait=False).add_done_callback(
                compaction.fail_with
            )
        except Exception as error:  # no room, or closed meanwhile: the old generation goes on
            with contextlib.suppress(PenstockError, OSError):
                if writer is not None:
                    writer.file.close()
                self._files.remove(self._generation_path(generation))
            self._compaction = None
            compaction.answer.fail(error)

    def _switch(self, compaction: _Compaction, writer: FrameWriter) -> None:
        for data, changes, wall_ms in compaction.tail:
            writer.add(data, changes, wall_ms)
        if compaction.tail:
            writer.sync()
        self._take_into_force(writer)
        self._compaction = None
        compaction.answer.complete(writer.next_entry - 1)

    # -- open ----------------------------------------------------------------------------------------------------

    def _take_over(self) -> tuple[uuid.UUID, int, int, bool]:
        """(uuid, our epoch, generation, whether it was there), the epoch durable."""
        if not self._files.exists(self._path("current")):
            self._refuse_records()
            EndFile.create(self._files, self._path("end"))
            return uuid.uuid4(), 1, 0, False
        path = self._path("current")
        raw = read_file(self._files, path)
        text, _, crc = raw.rstrip(b"\n").rpartition(b"\n")
        if not text or f"{google_crc32c.value(text):08x}".encode() != crc:
            raise corruption(path, 0, "it does not match its checksum")
        document = json.loads(text)
        if document["format"] != 1:
            raise NotSupported(f"{path} has format {document['format']}", hint="a newer Penstock wrote it: upgrade")
        if not self._files.exists(self._path("end")):
            raise Corruption(f"{self._path('end')} is missing", hint="nothing was changed; restore it from a copy")
        self.uuid, self.epoch = uuid.UUID(document["uuid"]), document["epoch"] + 1
        self._write_current(document["generation"])
        return self.uuid, self.epoch, document["generation"], True

    def _refuse_records(self) -> None:
        """The first record comes after `.current`: records without it mean that it was lost."""
        for name in self._files.list(self._directory):
            number = self._generation_of(name)
            if number is None:
                continue
            file = self._files.open(self._directory / name)
            try:
                lost = number > 1 or holds_frames(file, number)
            finally:
                file.close()
            if lost:
                raise Corruption(
                    f"{self._path('current')} is missing, but {name} is there",
                    hint="nothing was changed; restore the directory from a copy",
                )

    def _write_current(self, generation: int) -> None:
        document = {"format": 1, "uuid": str(self.uuid), "epoch": self.epoch, "generation": generation}
        text = json.dumps(document, separators=(",", ":")).encode()
        replace_file(self._files, self._path("current"), [text, f"\n{google_crc32c.value(text):08x}\n".encode()])

    def _recover(self, existed: bool) -> FrameWriter:
        slot = self._end_file.fence(self.epoch)
        if not existed:
            self._remove_leftovers()
            writer = self._create(1, 0)
            self._write_current(1)
            self._generation = 1
            return writer
        path = self._generation_path(self._generation)
        try:
            file = self._files.open(path, writable=True)
        except FileNotFoundError as error:
            raise corruption(path, 0, f"{self._path('current').name} names this file, but it is missing") from error
        try:
            header = read_file_header(file, RECORD_LOG_MAGIC, self.uuid, self._generation)
            same = slot is not None and slot.file_id == self._generation
            synced_end = slot.synced_end if slot and same else FILE_HEADER_BYTES
            end, index = find_end(file, self._generation, header.first_entry, synced_end)
            file.truncate(end)
            write_again(file, synced_end, end)  # whole records above the slot may be in the page cache only
            file.datasync()
        except BaseException:
            file.close()
            raise
        writer = FrameWriter(
            RestingFile(self._files, file, end),
            self._generation,
            self.epoch,
            next_entry=header.first_entry + len(index.offsets),
            end=end,
        )
        self._publish(writer)
        self._remove_leftovers()
        return writer

    def _create(self, generation: int, first_entry: int) -> FrameWriter:
        path = self._generation_path(generation)
        header = FileHeader(self.uuid, generation, self.epoch, self._clock.wall_ms(), first_entry)
        file = create_frame_file(self._files, path, RECORD_LOG_MAGIC, header, 0)
        file = RestingFile(self._files, file, FILE_HEADER_BYTES)
        return FrameWriter(file, generation, self.epoch, next_entry=first_entry, end=FILE_HEADER_BYTES)

    def _remove_leftovers(self) -> None:
        """Generations that `.current` does not name: an unfinished rewrite, or one whose last step was cut.

        Only the neighbours can be there: making a generation syncs the directory, and so the removal before it. The
        directory is not listed, because thousands of cursors share it.
        """
        for number in (self._generation - 1, self._generation + 1):
            if number > 0:
                self._files.remove(self._generation_path(number))

    def _path(self, kind: str) -> Path:
        return self._directory / f"{self._name}.{kind}"

    def _generation_path(self, generation: int) -> Path:
        return self._directory / f"{self._name}-{generation:016d}.rlog"

    def _generation_of(self, name: str) -> int | None:
        return _generation_of(self._name, name)


def record_log_files(files: Files, directory: Path, name: str) -> list[Path]:
    """Every file of the record log, in the order in which they may be removed while its owner's lock is held."""
    found = [entry for entry in files.list(directory) if _generation_of(name, entry) is not None]
    return [directory / entry for entry in (*found, f"{name}.end", f"{name}.current", f"{name}.lock")]


def _generation_of(name: str, entry: str) -> int | None:
    prefix, suffix = f"{name}-", ".rlog"
    if not (entry.startswith(prefix) and entry.endswith(suffix)):
        return None
    digits = entry[len(prefix) : -len(suffix)]
    return int(digits) if len(digits) == 16 and digits.isdecimal() else None
