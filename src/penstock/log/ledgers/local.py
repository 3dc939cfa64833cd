"""Ledgers as files of one directory (docs/formats/ledger.md): the `LedgerStore` of every log."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from penstock.errors import StorageFailed
from penstock.files import Buffer, File, Files, write_again
from penstock.log.frames.end_file import FinalEnd
from penstock.log.frames.file_header import (
    FILE_HEADER_BYTES,
    LEDGER_MAGIC,
    FileHeader,
    corruption,
    create_frame_file,
    refuse_foreign_file,
)
from penstock.log.frames.index import FrameIndex
from penstock.log.frames.reader import find_end, holds_frames, rebuild_index
from penstock.log.frames.walk import walked_index
from penstock.log.frames.writer import EncodedFrames, FrameWriter, NewEntry
from penstock.log.ledgers.footer import Footer, encode_footer, read_footer
from penstock.log.ledgers.info import LedgerInfo, ledger_id_of, ledger_path
from penstock.log.ledgers.store import LedgerFile, OpenLedger


def make_end_durable(file: File, synced_end: int, end: int) -> None:
    """Before a ledger that its owner left open is sealed at byte `end`: whole frames above the published end may be in the
    page cache alone, and count from here on."""
    file.truncate(end)
    write_again(file, max(synced_end, FILE_HEADER_BYTES), end)
    file.datasync()


class LocalLedger:
    """An `OpenLedger` in one file."""

    def __init__(self, info: LedgerInfo, file: File, preallocate_bytes: int) -> None:
        self.info = info
        self.synced_entries = 0
        self._file = file
        self._index = FrameIndex()
        self._writer = FrameWriter(
            file, info.id, info.epoch, next_entry=0, end=FILE_HEADER_BYTES, preallocate_bytes=preallocate_bytes
        )

    @property
    def next_entry(self) -> int:
        return self._writer.next_entry

    @property
    def end(self) -> int:
        return self._writer.end

    @property
    def synced_end(self) -> int:
        return self._writer.synced_end

    @property
    def synced_messages(self) -> int:
        return self._writer.synced_messages

    def add(self, entries: Sequence[NewEntry | Buffer], wall_ms: int, *, keep: bool) -> list[EncodedFrames]:
        before = self._writer.messages
        try:
            offsets, kept = self._writer.add_many(entries, wall_ms, keep=keep)
        except BaseException:
            self._writer.take_back(self.synced_entries)
            raise
        self._index.add_many(offsets, wall_ms, self._writer.messages - before)
        return kept

    def sync(self) -> None:
        self._writer.sync()
        self.synced_entries = self._writer.next_entry

    def seal(self) -> LedgerInfo:
        self._file.truncate(self.synced_end)
        self._file.append([encode_footer(self.info.id, self.synced_end, self._index)])
        self._file.datasync()
        return self.info.seal(self._index, self.synced_end)

    def reopen(self) -> None:
        self._writer.go_on()

    def seal_as_failed(self) -> LedgerInfo:
        durable = self._index.truncated_to(self.synced_entries, self.synced_messages)
        return self.info.seal(durable, self.synced_end, footer=False)

    def close(self) -> None:
        self._file.close()


class LocalLedgerFile:
    """A `LedgerFile` that is one file."""

    def __init__(self, file: File, recovered: FrameIndex | None) -> None:
        """`recovered`: the index that recovery found, if this process recovered the ledger."""
        self._file = file
        self._recovered = recovered
        self.path = file.path

    def read_at(self, offset: int, size: int) -> bytes:
        return self._file.read_at(offset, size)

    def size(self) -> int:
        return self._file.size()

    def footer(self, info: LedgerInfo) -> Footer:
        if info.skipped:
            return Footer.of(walked_index(self, info.id, info.entries, info.frames_end), info.frames_end)
        if info.footer:
            return read_footer(self, info)
        index = self._recovered
        if index is None or len(index.offsets) != info.entries:  # the log may have been truncated since the recovery
            index = rebuild_index(self, info.id, info.entries, info.frames_end)
        return Footer.of(index, info.frames_end)

    def close(self) -> None:
        self._file.close()


class LocalLedgerStore:
    """A `LedgerStore` over the files of one directory."""

    def __init__(self, directory: Path, files: Files, uuid: UUID, preallocate_bytes: int = 0) -> None:
        self._directory = directory
        self._files = files
        self._uuid = uuid
        self._preallocate_bytes = preallocate_bytes
        self._recovered: dict[int, FrameIndex] = {}  # indexes of the ledgers that this object sealed without a footer

    def create(self, ledger_id: int, epoch: int, created_ms: int) -> OpenLedger:
        path = ledger_path(self._directory, ledger_id)
        header = FileHeader(self._uuid, ledger_id, epoch, created_ms, 0)
        try:
            if self._files.exists(path):  # left by an attempt that failed half way
                self._files.remove(path)
            file = create_frame_file(self._files, path, LEDGER_MAGIC, header, self._preallocate_bytes)
        except OSError as error:
            raise StorageFailed(f"{path}: cannot be made: {error}", hint="free space or repair the disk") from error
        return LocalLedger(LedgerInfo(ledger_id, epoch, created_ms), file, self._preallocate_bytes)

    def recover(self, info: LedgerInfo, synced_end: int, final_end: FinalEnd | None) -> LedgerInfo:
        path = ledger_path(self._directory, info.id)
        try:
            file = self._files.open(path, writable=True)
        except FileNotFoundError as error:
            raise corruption(path, 0, "the ledger list names this file, but it is missing") from error
        try:
            refuse_foreign_file(file, LEDGER_MAGIC, self._uuid, info.id)
            if final_end is not None and final_end.file_id == info.id:
                end = final_end.frames_end
                index = rebuild_index(file, info.id, final_end.entries, end)
            else:
                end, index = find_end(file, info.id, 0, max(synced_end, FILE_HEADER_BYTES))
            make_end_durable(file, synced_end, end)
        finally:
            file.close()
        # No footer is written: the old owner may have been stopped between its look at the fence and its write, and would
        # write over the footer when it goes on. Frames that it writes after the sealed end count for nobody.
        self._recovered[info.id] = index
        return info.seal(index, end, footer=False)

    def copies(self, info: LedgerInfo) -> int:
        return 1

    def open(self, info: LedgerInfo, copy: int = 0) -> LedgerFile:
        file = self._files.open(ledger_path(self._directory, info.id))
        try:
            refuse_foreign_file(file, LEDGER_MAGIC, self._uuid, info.id)
        except BaseException:
            file.close()
            raise
        return LocalLedgerFile(file, self._recovered.get(info.id))

    def delete(self, ledger_id: int) -> None:
        try:
            self._files.remove(ledger_path(self._directory, ledger_id))
            self._files.sync_directory(self._directory)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise StorageFailed(f"ledger {ledger_id} of {self._directory} cannot be removed: {error}") from error

    def list(self) -> list[int]:
        numbers = map(ledger_id_of, self._files.list(self._directory))
        return [number for number in numbers if number is not None]

    def holds_entries(self, ledger_id: int) -> bool:
        file = self._files.open(ledger_path(self._directory, ledger_id))
        try:
            return holds_frames(file, ledger_id)
        finally:
            file.close()
