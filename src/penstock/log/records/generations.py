"""The generations of a record log (docs/formats/record-log.md): which of them is in force, and who may make the next.

Making a generation's file is a claim: exactly one process succeeds. Writing the header brings the file into force. An
owner writes only into files that it made itself, so one that was replaced does no harm, even if its lock failed to
protect the record log; it finds a newer name before it acknowledges anything more.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from penstock.errors import Corruption, Fenced, NotSupported, PenstockError, StorageFailed
from penstock.files import File, Files, read_file, replace_file
from penstock.log.frames.end_file import EndFile, SyncedEnd
from penstock.log.frames.file_header import (
    FILE_HEADER_BYTES,
    RECORD_LOG_MAGIC,
    FileHeader,
    corruption,
    has_header,
    read_file_header,
)
from penstock.log.frames.reader import holds_frames

_FORMAT = 2


class InForce(NamedTuple):
    """The generation in force, open for reading. At least the bytes before `synced_end` are durable."""

    number: int
    file: File
    header: FileHeader
    synced_end: int


class Generations:
    """The files of one record log. `newest` is the last one that this owner made; 0 for a process that only reads."""

    def __init__(self, files: Files, directory: Path, name: str) -> None:
        self._files = files
        self._directory = directory
        self._name = name
        self._lock = threading.Lock()
        self._spare = 0  # a generation that this owner claimed and could not bring into force
        self._half_claimed = 0  # its file was made, and then the disk failed: it may be void, or claimed
        self.newest = 0

    def path(self, generation: int) -> Path:
        return generation_path(self._directory, self._name, generation)

    # -- who owns the record log ---------------------------------------------------------------------------------

    def claim(self, number: int) -> File:
        """Makes the generation, which deposes every other owner. Raises `FileExistsError` where another was faster."""
        with self._lock:
            file = self._files.create(self.path(number))
            self._half_claimed = number
            before = number - 1
            if before and not self._files.exists(self.path(before)):
                # The generation before is gone, so `number` existed before and was removed: the newest one is beyond
                # it.
                file.close()
                self._files.remove(self.path(number))
                self._half_claimed = 0
                raise FileExistsError(f"{self.path(number)} was there before")
            self.newest = number
            self._half_claimed = 0
            return file

    def claim_first(self, number: int) -> File:
        """As `claim`, for a record log that has no generation yet."""
        with self._lock:
            file = self._files.create(self.path(number))
            self.newest = number
            return file

    def claim_next(self) -> tuple[int, File]:
        """For the owner: the generation after its newest, or one that it claimed and gave up. Raises `Fenced`."""
        spare = self._spare
        if spare:
            file = self._files.open(self.path(spare), writable=True)
            file.truncate(0)
            self._spare = 0
            return spare, file
        number = self.newest + 1
        try:
            return number, self.claim(number)
        except FileExistsError:
            raise self._fenced() from None

    def give_up(self, number: int) -> None:
        """The claimed generation is not brought into force; `claim_next` offers it again. The file stays: were it
        removed, another process that claimed the next number meanwhile would take its claim for void."""
        self._spare = number
        with contextlib.suppress(PenstockError, OSError):
            file = self._files.open(self.path(number), writable=True)
            try:
                file.truncate(0)
            finally:
                file.close()

    def check(self) -> None:
        """Raises `Fenced` where another owner came, `StorageFailed` where a claim of this one failed half-way: then nobody
        can tell. The order of the two questions matters: rule 4 of the format."""
        with self._lock:
            exists = self._files.exists
            if exists(self.path(self.newest + 1)) or not exists(self.path(self.newest)):
                raise self._fenced()

    def _fenced(self) -> Fenced | StorageFailed:
        if self._half_claimed == self.newest + 1:
            return StorageFailed(
                f"{self.path(self._half_claimed)}: the disk failed while this owner made it",
                hint="repair the disk, then start again",
            )
        return Fenced(
            f"{self._directory / self._name}: its owner, which made generation {self.newest}, was replaced",
            hint="another process owns it now; stop this one",
        )

    # -- which generation is in force ----------------------------------------------------------------------------

    def existing(self, hint: int) -> range:
        """The consecutive generations up to the newest one. `hint`: one that may exist, 0 for none."""
        exists = self._files.exists
        newest = hint
        if hint and exists(self.path(hint)):
            while exists(self.path(newest + 1)):
                newest += 1
        else:
            newest = max(self.listed(), default=0)
        oldest = newest
        while oldest > 1 and exists(self.path(oldest - 1)):
            oldest -= 1
        return range(oldest, newest + 1) if newest else range(0)

    def listed(self) -> list[int]:
        """Every generation that exists, ascending. Slow where thousands of record logs share the directory."""
        found = (generation_of(self._name, entry) for entry in self._files.list(self._directory))
        return sorted(number for number in found if number is not None)

    def in_force(self, numbers: range, identity: uuid.UUID, slot: SyncedEnd | None) -> InForce | None:
        """The newest one with a header, open; None where there is none. Raises `Corruption`, `FileNotFoundError`."""
        for number in reversed(numbers):
            found = self._open(number, identity, slot)
            if found is not None:
                return found
        return None

    def _open(self, number: int, identity: uuid.UUID, slot: SyncedEnd | None) -> InForce | None:
        """None where the generation has no header. One that the slot names had a header: without it, it is damaged."""
        named = slot is not None and slot.file_id == number
        try:
            file = self._files.open(self.path(number))
            try:
                if not named and not has_header(file):
                    file.close()
                    return None
                header = read_file_header(file, RECORD_LOG_MAGIC, identity, number)
            except BaseException:
                file.close()
                raise
        except IsADirectoryError as error:
            raise corruption(self.path(number), 0, "a directory stands in the place of the file") from error
        return InForce(number, file, header, slot.synced_end if slot and named else FILE_HEADER_BYTES)

    def refuse_lost(self) -> list[int]:
        """The leftovers of a creation that a crash interrupted. Raises `Corruption` where they hold records: then
        `.current` was there and is lost."""
        numbers = self.listed()
        for number in numbers:
            file = self._files.open(self.path(number))
            try:
                lost = holds_frames(file, number)
            finally:
                file.close()
            if lost:
                raise self.current_lost(self.path(number).name)
        return numbers

    def current_lost(self, witness: str) -> Corruption:
        return Corruption(
            f"{self._directory / f'{self._name}.current'} is missing, but {witness} is there",
            hint="nothing was changed; restore the directory from a copy",
        )

    def remove(self, numbers: range | list[int]) -> None:
        """Oldest first, each removal durable before the next, so that those that exist stay consecutive."""
        for at, number in enumerate(sorted(numbers)):
            if at:
                self._files.sync_directory(self._directory)
            self._files.remove(self.path(number))


def locate(files: Files, directory: Path, name: str) -> InForce:
    """The generation in force, open, for a process that only reads. Raises `Corruption` where it is damaged or missing,
    `FileNotFoundError` where the owner brought another one into force meanwhile."""
    identity = read_identity(files, directory, name)
    generations = Generations(files, directory, name)
    end_file = EndFile.open(files, directory / f"{name}.end")
    try:
        slot = end_file.read()
    finally:
        end_file.close()
    return find_in_force(generations, identity, slot)[1]


def find_in_force(generations: Generations, identity: uuid.UUID, slot: SyncedEnd | None) -> tuple[range, InForce]:
    """The generations that exist, and the one in force, open. Raises `Corruption` where that is damaged or missing."""
    hint = slot.file_id if slot is not None else 0
    numbers = generations.existing(hint)
    found = generations.in_force(numbers, identity, slot)
    if (
        found is None and numbers
    ):  # a void claim (rule 3), by a process that was stopped meanwhile: the newest is beyond it
        numbers = generations.existing(0)
        found = generations.in_force(numbers, identity, slot)
    if found is None or found.number < hint:
        if found is not None:
            found.file.close()
        where = generations.path(hint or max(numbers, default=0))
        raise corruption(where, 0, "this file was in force, but it is missing or has lost its header")
    return numbers, found


def read_identity(files: Files, directory: Path, name: str) -> uuid.UUID:
    """The record log's uuid, from `.current`. Raises `FileNotFoundError`, `Corruption`, `NotSupported`."""
    path = directory / f"{name}.current"
    raw = read_file(files, path)
    text, _, crc = raw.rstrip(b"\n").rpartition(b"\n")
    if not text or not raw.endswith(b"\n") or f"{google_crc32c.value(text):08x}".encode() != crc:
        raise corruption(path, 0, "it does not match its checksum")
    try:
        document = json.loads(text)
        if document["format"] == _FORMAT:
            return uuid.UUID(document["uuid"])
        found = int(document["format"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise corruption(path, 0, "its checksum matches, but it does not name a record log") from error
    raise NotSupported(f"{path} has format {found}", hint="a newer Penstock wrote it: upgrade")


def write_identity(files: Files, directory: Path, name: str, identity: uuid.UUID) -> None:
    text = json.dumps({"format": _FORMAT, "uuid": str(identity)}, separators=(",", ":")).encode()
    replace_file(files, directory / f"{name}.current", [text, f"\n{google_crc32c.value(text):08x}\n".encode()])


def generation_path(directory: Path, name: str, generation: int) -> Path:
    return directory / f"{name}-{generation:016d}.rlog"


def generation_of(name: str, entry: str) -> int | None:
    """The number in the name of a generation of record log `name`; None for other files."""
    prefix, suffix = f"{name}-", ".rlog"
    if not (entry.startswith(prefix) and entry.endswith(suffix)):
        return None
    digits = entry[len(prefix) : -len(suffix)]
    return int(digits) if len(digits) == 16 and digits.isdecimal() else None


_ASIDE = ".damaged-"


def set_aside(files: Files, directory: Path, name: str, wall_ms: int) -> None:
    """Gives every file of a damaged record log another name, under which nobody looks for it.

    The lock stays, and is held already. A crash half way leaves some files: they are set aside the next time.
    """
    for entry in _own_files(files, directory, name):
        files.rename(directory / entry, directory / f"{entry}{_ASIDE}{wall_ms}")
    files.sync_directory(directory)


def files_aside(files: Files, directory: Path, name: str) -> list[Path]:
    """The files of the record log that were ever set aside."""
    return [directory / entry for entry in files.list(directory) if _ASIDE in entry
            and _is_own(entry.rpartition(_ASIDE)[0], name)]  # fmt: skip


def has_files(files: Files, directory: Path, name: str) -> bool:
    """Whether anything of the record log is there, but for its lock."""
    return bool(_own_files(files, directory, name))


def _own_files(files: Files, directory: Path, name: str) -> list[str]:
    return [entry for entry in files.list(directory) if _is_own(entry, name)]


def _is_own(entry: str, name: str) -> bool:
    return entry in (f"{name}.current", f"{name}.end") or generation_of(name, entry) is not None


def record_log_files(files: Files, directory: Path, name: str) -> list[Path]:
    """Every file of the record log, in the order in which they may be removed while its owner's lock is held.

    The directory is listed: a power cut may have kept any of the generations that an earlier removal removed, and `.end`
    says nothing of those that do not stand side by side with the newest one.
    """
    generations = Generations(files, directory, name)
    return [
        *(generations.path(number) for number in generations.listed()),
        *(directory / f"{name}.{kind}" for kind in ("end", "current", "lock")),
    ]
