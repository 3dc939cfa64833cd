"""Becoming the owner of a record log (docs/formats/record-log.md, "Create" and "Open"), and making its generations."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import Corruption, Unavailable
from penstock.files import File, Files
from penstock.log.frames.end_file import EndFile
from penstock.log.frames.file_header import FILE_HEADER_BYTES, RECORD_LOG_MAGIC, FileHeader, corruption
from penstock.log.frames.reader import BadFrameAt, find_end, read_frames
from penstock.log.frames.writer import FrameWriter
from penstock.log.position import Position
from penstock.log.records.generations import Generations, InForce, find_in_force, read_identity, write_identity
from penstock.log.records.idle_file import IdleFile

_COPY_BYTES = 8 << 20  # how much of the old generation is in memory while it is copied
_ATTEMPTS_MAX = 20


class Made(NamedTuple):
    """A generation that this owner made, and the header that will bring it into force."""

    writer: FrameWriter
    header: FileHeader


class GenerationMaker:
    """The steps from a claimed name to a generation in force."""

    def __init__(self, files: Files, directory: Path, clock: Clock, generations: Generations) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._generations = generations

    def begin(self, generation: int, file: File, first_entry: int, identity: uuid.UUID, epoch: int) -> Made:
        """Makes a claimed generation ready for frames. It has no header yet: after a crash now it does not count."""
        header = FileHeader(identity, generation, epoch, self._clock.wall_ms(), first_entry)
        idle_file = IdleFile(self._files, file, FILE_HEADER_BYTES)
        return Made(FrameWriter(idle_file, generation, epoch, next_entry=first_entry, end=FILE_HEADER_BYTES), header)

    def finish(self, made: Made) -> None:
        """Makes its frames and its name durable."""
        if made.writer.end > made.writer.synced_end:
            made.writer.sync()
        self._files.sync_directory(self._directory)

    def write_header(self, made: Made) -> None:
        """Brings it into force. Raises `Fenced` where another owner came."""
        made.writer.file.write_at(0, made.header.encode(RECORD_LOG_MAGIC))
        made.writer.file.datasync()
        self._generations.check()


class Owned(NamedTuple):
    """What an owner holds. `writer` writes its first generation, whose number is its epoch."""

    uuid: uuid.UUID
    generations: Generations
    maker: GenerationMaker
    end_handle: IdleFile
    end_file: EndFile
    writer: FrameWriter


def take_over(directory: Path, name: str, files: Files, clock: Clock, resources: contextlib.ExitStack) -> Owned:
    """Becomes the owner; the lock is held already. A generation that this process made is in force when it returns."""
    opening = _Opening(directory, name, files, clock)
    with contextlib.ExitStack() as on_error:
        on_error.callback(opening.close)
        identity, writer = opening.run()
        on_error.pop_all()
    resources.callback(opening.end_file.close)
    return Owned(identity, opening.generations, opening.maker, opening.end_handle, opening.end_file, writer)


def publish(end_file: EndFile, writer: FrameWriter) -> None:
    end_file.publish(writer.file_id, writer.synced_end, Position(writer.file_id, writer.next_entry - 1))


class _Opening:
    """One attempt to become the owner."""

    end_handle: IdleFile
    end_file: EndFile

    def __init__(self, directory: Path, name: str, files: Files, clock: Clock) -> None:
        self._directory = directory
        self._name = name
        self._files = files
        self._clock = clock
        self._opened: list[File] = []
        self.generations = Generations(files, directory, name)
        self.maker = GenerationMaker(files, directory, clock, self.generations)

    def close(self) -> None:
        """After a failure: closes the files."""
        for file in self._opened:
            file.close()

    def run(self) -> tuple[uuid.UUID, FrameWriter]:
        """The steps "Create" or "Open" of the format; the record log's uuid, and the writer of the new generation."""
        try:
            identity = read_identity(self._files, self._directory, self._name)
        except FileNotFoundError:
            return self._create()
        if not self._files.exists(self._path("end")):
            raise Corruption(f"{self._path('end')} is missing", hint="nothing was changed; restore it from a copy")
        self._open_end()
        for _ in range(_ATTEMPTS_MAX):
            with contextlib.suppress(FileExistsError, FileNotFoundError):  # another owner was faster
                return identity, self._succeed(identity)
        raise Unavailable(f"{self._directory / self._name}: others open it all the time", hint="try again")

    def _succeed(self, identity: uuid.UUID) -> FrameWriter:
        """Makes a generation with the records of the one in force, and brings it into force."""
        numbers, found = find_in_force(self.generations, identity, self.end_file.read())
        try:
            size = found.file.size()
            end = find_end(found.file, found.number, found.header.first_entry, found.synced_end)[0]
            # Damage is reported above, before anything changes. From the claim on the old owner is deposed; what it
            # wrote until then counts, so the generation in force is looked up and measured again after it.
            if numbers[-1] != found.number:
                self._files.sync_directory(self._directory)  # a claim is durable before the one after it is made
            claimed = self.generations.claim(numbers[-1] + 1)
            checked = found.number
            found.file.close()
            found = find_in_force(self.generations, identity, self.end_file.read())[1]
            if found.number != checked or found.file.size() != size:
                end = find_end(found.file, found.number, found.header.first_entry, found.synced_end)[0]
            made = self._begin(claimed, found.header.first_entry, identity)
            self._copy(found, end, made.writer)
        finally:
            found.file.close()
        self.maker.finish(made)
        self.maker.write_header(made)
        self.end_file.own(made.writer.file_id)
        publish(self.end_file, made.writer)
        self.generations.remove(numbers)
        return made.writer

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
        # Durable before a generation is: where there is no `.end`, nobody looks for what a crash left.
        EndFile.create(self._files, self._path("end"))
        self._open_end()
        if not fresh:
            if self.end_file.read() is not None:
                raise self.generations.current_lost(self._path("end").name)
            leftovers = self.generations.refuse_lost()
        number = leftovers[-1] + 1 if leftovers else max(self._clock.wall_ms(), 1)
        file = self.generations.claim_first(number)
        made = self._begin(file, 0, uuid.uuid4())
        self.maker.finish(made)
        self.maker.write_header(made)
        write_identity(self._files, self._directory, self._name, made.header.uuid)
        self.end_file.own(number)
        publish(self.end_file, made.writer)
        self.generations.remove(leftovers)
        return made.header.uuid, made.writer

    def _open_end(self) -> None:
        self.end_handle = IdleFile(self._files, self._files.open(self._path("end"), writable=True))
        self.end_file = EndFile(self.end_handle)
        self._opened.append(self.end_handle)

    def _begin(self, file: File, first_entry: int, identity: uuid.UUID) -> Made:
        self._opened.append(file)
        number = self.generations.newest
        return self.maker.begin(number, file, first_entry, identity, number)

    def _path(self, kind: str) -> Path:
        return self._directory / f"{self._name}.{kind}"
