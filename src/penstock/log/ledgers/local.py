"""Where ledgers live: one small interface, and local files behind it (docs/formats/ledger.md).

The managed log and its readers know only `LedgerStore`. A store makes ledgers, recovers those that an owner left open,
gives bytes of them to readers, and removes them. Frames and their order are the log's business, ownership (epoch and
fence) is asked before and after each sync.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import UUID

from penstock.errors import StorageFailed
from penstock.files import Buffer, File, Files, write_again
from penstock.log.frames.end_file import Cut
from penstock.log.frames.file_header import (
    FILE_HEADER_BYTES,
    LEDGER_MAGIC,
    FileHeader,
    corruption,
    create_frame_file,
    read_file_header,
)
from penstock.log.frames.reader import find_end, holds_frames, rebuild_index
from penstock.log.frames.writer import FrameIndex, FrameWriter, NewEntry, Packed
from penstock.log.ledgers.info import LedgerInfo, encode_footer, ledger_id_of, ledger_path


class LedgerFile(Protocol):
    """A ledger open for reading, whatever holds its bytes."""

    @property
    def path(self) -> Path | str: ...

    def read_at(self, offset: int, size: int) -> bytes: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class OpenLedger(Protocol):
    """A ledger that its owner writes. Entries count once `sync` returned; the first failure makes it unusable."""

    info: LedgerInfo
    synced_entries: int

    @property
    def next_entry(self) -> int:
        """What the next entry that is added gets."""
        ...

    @property
    def end(self) -> int:
        """Bytes, with what is not synced yet."""
        ...

    @property
    def synced_end(self) -> int: ...

    def add(self, entries: Sequence[NewEntry | Buffer], wall_ms: int, *, keep: bool) -> list[Packed]:
        """Queues entries; `keep` asks for their frames in memory, for readers at the tail."""
        ...

    def sync(self) -> None:
        """Everything that was added is durable. Raises `StorageFailed`."""
        ...

    def seal(self) -> LedgerInfo:
        """Adds the index, durable: what the list may say from now on."""
        ...

    def reopen(self) -> None:
        """Goes on after a `seal` that the list never learned of."""
        ...

    def seal_as_failed(self) -> LedgerInfo:
        """What the list may say of a ledger that cannot be written: its last durable entry is its end."""
        ...

    def close(self) -> None: ...


class LedgerStore(Protocol):
    """What the log asks of the place where its ledgers are."""

    def create(self, ledger_id: int, epoch: int, created_ms: int) -> OpenLedger:
        """A new ledger whose number no list ever named; durable and empty."""
        ...

    def recover(self, info: LedgerInfo, synced_end: int, cut: Cut | None) -> LedgerInfo:
        """Seals a ledger that its owner left open, at its true end. Raises `Corruption`, having touched nothing."""
        ...

    def copies(self, info: LedgerInfo) -> int:
        """From how many places the ledger can be read: where one fails, the next is asked."""
        ...

    def open(self, info: LedgerInfo, copy: int = 0) -> LedgerFile:
        """Raises `FileNotFoundError` where it is gone."""
        ...

    def delete(self, ledger_id: int) -> None:
        """Of what `create` made; fine if it is not there; durable when it returns."""
        ...

    def list(self) -> list[int]:
        """Numbers of the ledgers that `create` made and that are still here, named by a list or not."""
        ...

    def holds_entries(self, ledger_id: int) -> bool: ...


class LocalLedger:
    """An open ledger in one file."""

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

    def add(self, entries: Sequence[NewEntry | Buffer], wall_ms: int, *, keep: bool) -> list[Packed]:
        offsets, packed = self._writer.add_many(entries, wall_ms, keep=keep)
        self._index.add_many(offsets, wall_ms)
        return packed

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
        durable = self._index.cut(self.synced_entries)
        return self.info.seal(durable, self.synced_end, footer=False)

    def close(self) -> None:
        self._file.close()


class LocalLedgerStore:
    """Ledgers as files of one directory."""

    def __init__(self, directory: Path, files: Files, uuid: UUID, preallocate_bytes: int = 0) -> None:
        self._directory = directory
        self._files = files
        self._uuid = uuid
        self._preallocate_bytes = preallocate_bytes
        self.recovered: dict[int, FrameIndex] = {}  # of ledgers that were sealed without a footer by this very object

    def create(self, ledger_id: int, epoch: int, created_ms: int) -> OpenLedger:
        path = ledger_path(self._directory, ledger_id)
        if self._files.exists(path):  # an attempt that failed half way
            self._files.remove(path)
        header = FileHeader(self._uuid, ledger_id, epoch, created_ms, 0)
        try:
            file = create_frame_file(self._files, path, LEDGER_MAGIC, header, self._preallocate_bytes)
        except OSError as error:
            raise StorageFailed(f"{path}: cannot be made: {error}", hint="free space or repair the disk") from error
        return LocalLedger(LedgerInfo(ledger_id, epoch), file, self._preallocate_bytes)

    def recover(self, info: LedgerInfo, synced_end: int, cut: Cut | None) -> LedgerInfo:
        path = ledger_path(self._directory, info.id)
        try:
            file = self._files.open(path, writable=True)
        except FileNotFoundError as error:
            raise corruption(path, 0, "the ledger list names this file, but it is missing") from error
        try:
            read_file_header(file, LEDGER_MAGIC, self._uuid, info.id)
            if cut is not None and cut.file_id == info.id:
                end, index = cut.frames_end, rebuild_index(file, info.id, cut.entries, cut.frames_end)
            else:
                end, index = find_end(file, info.id, 0, max(synced_end, FILE_HEADER_BYTES))
            # Whole frames above the slot may be in the page cache only: they count from the sync below on.
            file.truncate(end)
            write_again(file, max(synced_end, FILE_HEADER_BYTES), end)
            file.datasync()
        finally:
            file.close()
        # No footer: an owner that was stopped between its look at the fence and its write would write over it. What it
        # writes after the end of the frames counts for nobody.
        self.recovered[info.id] = index
        return info.seal(index, end, footer=False)

    def copies(self, info: LedgerInfo) -> int:
        return 1

    def open(self, info: LedgerInfo, copy: int = 0) -> LedgerFile:
        file = self._files.open(ledger_path(self._directory, info.id))
        try:
            read_file_header(file, LEDGER_MAGIC, self._uuid, info.id)
        except BaseException:
            file.close()
            raise
        return file

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
