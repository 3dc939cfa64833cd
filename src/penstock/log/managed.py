"""The managed log: one owner appends, in order, into ledgers that roll; what was acknowledged survives any crash.

Open, roll and close follow the numbered orders of docs/formats/ledger.md. An owner holds a lock and an epoch; the epoch
is durable in the metadata store before it is used. A deposed owner learns of it before it acknowledges anything more:
every append of it ends with `Fenced`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, Corruption, Fenced, NotSupported
from penstock.files import REAL_FILES, Buffer, Files, write_again
from penstock.log.file_header import (
    FILE_HEADER_BYTES,
    LEDGER_MAGIC,
    FileHeader,
    corruption,
    create_frame_file,
    read_file_header,
)
from penstock.log.frame import BODY_BYTES_MAX, Entry, FrameInfo, StateChange, total_bytes
from penstock.log.frame_reader import find_end, holds_frames
from penstock.log.frame_writer import FrameIndex, FrameWriter
from penstock.log.group_commit import Append, GroupCommit
from penstock.log.ledger import LedgerInfo, LedgerList, encode_footer, ledger_id_of, ledger_name, ledger_path
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.reader import END_NAME, LogReader, default_metadata_path, log_key
from penstock.log.synced import HINTS_MAX, EndFile, SyncedEnd
from penstock.metadata import MetadataStore, SqliteMetadata, VersionConflict, Versioned

_HINT_BYTES = 1 << 20  # a reader that seeks in the open ledger walks over at most about this much


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Plain data; each limit has a reason."""

    ledger_bytes_max: int = 256 << 20  # small enough to move or restore as one object, large enough to roll seldom
    ledger_entries_max: int = 500_000  # keeps a footer's index within 4 MB
    preallocate_bytes: int = 16 << 20  # step in which the open ledger reserves space ahead of its end
    waiting_bytes_max: int = 256 << 20  # appends that wait for the disk; beyond it, append itself waits


class Log:
    """The owner's handle. Thread-safe."""

    def __init__(
        self,
        directory: Path,
        *,
        settings: LogSettings,
        files: Files,
        clock: Clock,
        metadata: MetadataStore,
        resources: contextlib.ExitStack,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._files = files
        self._clock = clock
        self._metadata = metadata
        self._resources = resources
        self._reader: LogReader | None = None
        self._reader_lock = threading.Lock()
        self._key = log_key(directory)
        found = metadata.get(self._key)
        orphans = self._orphans(LedgerList.decode(found.value) if found else None)
        self._prepare_directory(is_new=found is None)
        self._end_file = EndFile.open(files, directory / END_NAME, writable=True)
        resources.callback(self._end_file.close)
        self._list, self._version = self._take_over(found)
        slot = self._end_file.fence(self._list.epoch)
        self._last = Position(0, -1)
        self._hinted = 0
        self._writer, self._index = self._recover(slot, orphans)
        self._commit_thread: GroupCommit[Position] = GroupCommit(
            f"log {directory}", self._commit, settings.waiting_bytes_max, self._seal_at_close
        )

    @classmethod
    def open(
        cls,
        directory: Path,
        settings: LogSettings | None = None,
        files: Files = REAL_FILES,
        clock: Clock = SYSTEM_CLOCK,
        metadata: MetadataStore | None = None,
    ) -> Log:
        """Becomes the owner: recovers what the last one left, and starts a ledger of its own.

        Raises `Unavailable` while another process holds the log, `Corruption` where durable bytes are damaged.
        """
        with contextlib.ExitStack() as resources:
            settings = settings or LogSettings()
            files.make_directory(directory)
            resources.enter_context(files.lock(directory / "lock"))
            if metadata is None:
                metadata = SqliteMetadata(default_metadata_path(directory))
                resources.callback(metadata.close)
            log = cls(directory, settings=settings, files=files, clock=clock, metadata=metadata, resources=resources)
            log._resources = resources.pop_all()  # from here on close() releases them
            return log

    @property
    def uuid(self) -> uuid.UUID:
        return self._list.uuid

    @property
    def epoch(self) -> int:
        return self._list.epoch

    @property
    def end(self) -> Position:
        """The last durable entry; `(ledger, -1)` where there is none."""
        return self._last

    def append(
        self, data: Buffer | Sequence[Buffer], changes: Sequence[StateChange] = (), *, wait: bool = True
    ) -> Pending[Position]:
        """Appends one entry; the position comes once entry and changes are durable.

        The buffers must not change until then. Waits while `waiting_bytes_max` wait, unless `wait` is off: then call
        `wait_for_room` before taking a lock that callbacks want. Raises what stopped the log before.
        """
        buffers = (data,) if isinstance(data, bytes | bytearray | memoryview) else data
        size = 0
        for buffer in buffers:
            if isinstance(buffer, memoryview) and (buffer.itemsize != 1 or not buffer.c_contiguous):
                raise BadInput("a buffer of an entry must be contiguous bytes")
            size += len(buffer)
        size += total_bytes(changes)
        if size > BODY_BYTES_MAX:
            raise BadInput(f"an entry of {size} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
        return self._commit_thread.submit(buffers, changes, size, wait=wait)

    def wait_for_room(self) -> None:
        """Returns once less than `waiting_bytes_max` waits."""
        self._commit_thread.wait_for_room()

    def read(self, start: Position, end: Position) -> Iterator[Entry]:
        """The durable entries from `start` to `end`, both included."""
        return self.reader().read(start, end)

    def infos(self) -> Iterator[FrameInfo]:
        """Every durable entry without its data: what a replay of state needs."""
        reader = self.reader()
        if not reader.complete:
            raise NotSupported(
                "the first ledgers of this log were trimmed, so its state cannot be replayed from the start",
                hint="a state checkpoint is needed; this version has none",
            )
        return reader.scan(reader.first, reader.end())

    def reader(self) -> LogReader:
        """A reader of this log that shares its metadata store; closed with the log."""
        with self._reader_lock:
            if self._reader is None:
                self._reader = LogReader(self._directory, self._files, self._metadata, owns_metadata=False)
                self._resources.callback(self._reader.close)
            return self._reader

    def close(self) -> None:
        """Finishes what waits, seals the ledger and gives up ownership. Raises what went wrong at the last moment."""
        already_failed = self._commit_thread.error
        self._commit_thread.close()
        self._writer.file.close()
        self._resources.close()
        error = self._commit_thread.error
        if error is not None and error is not already_failed:
            raise error

    # -- the writer thread ---------------------------------------------------------------------------------------

    def _commit(self, batch: list[Append]) -> list[Position]:
        """One group: (1) fence asked; (2) frames written and synced; (3) fence asked again; (4) slot; then the futures."""
        self._end_file.check()
        wall_ms = self._clock.wall_ms()
        writer = self._writer
        positions = []
        for item in batch:
            if (
                writer.end >= self._settings.ledger_bytes_max or writer.next_entry >= self._settings.ledger_entries_max
            ) and writer.next_entry:
                self._sync()
                self._roll()
                writer = self._writer
            position = Position(writer.file_id, writer.next_entry)
            self._index.add(writer.add(item.data, item.changes, wall_ms), wall_ms)
            positions.append(position)
        self._sync()
        return positions

    def _sync(self) -> None:
        writer = self._writer
        writer.sync()
        self._end_file.check()
        last = Position(writer.file_id, writer.next_entry - 1)
        self._end_file.publish(writer.file_id, writer.synced_end, last)
        self._last = last
        if writer.synced_end - self._hinted >= max(_HINT_BYTES, self._settings.ledger_bytes_max // HINTS_MAX * 2):
            self._end_file.hint(writer.file_id, writer.next_entry, writer.synced_end)
            self._hinted = writer.synced_end

    def _roll(self) -> None:
        """(1) footer, sync; (2) the next file; (3) compare-and-set the list; (4) slot."""
        old = self._writer
        sealed = self._seal(old, self._index)
        number = self._list.next_ledger - 1  # reserved by the last change of the list
        self._writer, self._index = self._new_ledger(number), FrameIndex()
        self._change_list(
            next_ledger=self._list.next_ledger + 1,
            ledgers=(*self._list.ledgers[:-1], sealed, LedgerInfo(number, self.epoch)),
        )
        self._end_file.publish(number, self._writer.synced_end, self._last)
        self._hinted = 0
        old.file.close()

    def _seal(self, writer: FrameWriter, index: FrameIndex) -> LedgerInfo:
        file = writer.file
        file.truncate(writer.synced_end)
        file.append([encode_footer(writer.file_id, writer.synced_end, index)])
        file.datasync()
        return self._list.ledgers[-1].seal(index, writer.synced_end)

    def _seal_at_close(self) -> None:
        self._end_file.check()
        writer = self._writer
        if writer.next_entry:
            ledgers = (*self._list.ledgers[:-1], self._seal(writer, self._index))
        else:
            ledgers = self._list.ledgers[:-1]
        self._change_list(ledgers=ledgers)
        self._end_file.sync()
        if not writer.next_entry:
            self._files.remove(writer.file.path)

    # -- open ----------------------------------------------------------------------------------------------------

    def _orphans(self, listed: LedgerList | None) -> list[int]:
        """Ledger files that the list does not name: leftovers. Refuses one that holds entries, before anything changes."""
        known = {ledger.id for ledger in listed.ledgers} if listed else set()
        numbers = map(ledger_id_of, self._files.list(self._directory))
        orphans = [number for number in numbers if number is not None and number not in known]
        for number in orphans:
            self._refuse_entries(number)
        return orphans

    def _prepare_directory(self, *, is_new: bool) -> None:
        if is_new:
            EndFile.create(self._files, self._directory / END_NAME)
        elif not self._files.exists(self._directory / END_NAME):
            raise Corruption(
                f"{self._directory / END_NAME} is missing, but the metadata knows this log",
                hint="nothing was changed; restore the directory from a copy",
            )

    def _take_over(self, found: Versioned | None) -> tuple[LedgerList, int]:
        """The list with our epoch and a ledger number reserved, durable."""
        if found is None:
            first = LedgerList(uuid.uuid4(), self._end_file.fence_epoch() + 1, 2, 0, ())
            return first, self._metadata.create(self._key, first.encode())
        old = LedgerList.decode(found.value)
        new = dataclasses.replace(old, epoch=old.epoch + 1, next_ledger=old.next_ledger + 1)
        try:
            return new, self._metadata.put(self._key, new.encode(), found.version)
        except VersionConflict as error:
            raise Fenced(f"{self._directory}: another process opened the log at the same time") from error

    def _change_list(self, *, ledgers: tuple[LedgerInfo, ...], next_ledger: int | None = None) -> None:
        new = dataclasses.replace(self._list, ledgers=ledgers, next_ledger=next_ledger or self._list.next_ledger)
        try:
            self._version = self._metadata.put(self._key, new.encode(), self._version)
        except VersionConflict as error:
            raise Fenced(
                f"{self._directory}: another owner changed the ledger list", hint="stop this process"
            ) from error
        self._list = new

    def _recover(self, slot: SyncedEnd | None, orphans: list[int]) -> tuple[FrameWriter, FrameIndex]:
        ledgers = [info if info.sealed else self._recover_ledger(info, slot) for info in self._list.ledgers]
        kept = tuple(info for info in ledgers if info.entries)
        number = self._list.next_ledger - 1
        writer = self._new_ledger(number)
        self._last = Position(kept[-1].id, kept[-1].entries - 1) if kept else Position(number, -1)
        # The number for the next roll is reserved here, so that a roll needs one change of the list.
        self._change_list(next_ledger=self._list.next_ledger + 1, ledgers=(*kept, LedgerInfo(number, self.epoch)))
        self._end_file.publish(number, writer.synced_end, self._last)
        for leftover in {*orphans, *(info.id for info in ledgers if not info.entries)}:
            self._files.remove(ledger_path(self._directory, leftover))
        return writer, FrameIndex()

    def _recover_ledger(self, info: LedgerInfo, slot: SyncedEnd | None) -> LedgerInfo:
        """Finds the true end of a ledger that its owner did not seal, and seals it there."""
        path = ledger_path(self._directory, info.id)
        try:
            file = self._files.open(path, writable=True)
        except FileNotFoundError as error:
            raise corruption(path, 0, "the ledger list names this file, but it is missing") from error
        try:
            read_file_header(file, LEDGER_MAGIC, self.uuid, info.id)
            synced_end = slot.synced_end if slot is not None and slot.file_id == info.id else FILE_HEADER_BYTES
            end, index = find_end(file, info.id, 0, synced_end)
            # Whole frames above the slot may be in the page cache only: they count from the sync below on.
            file.truncate(end)
            write_again(file, synced_end, end)
            file.append([encode_footer(info.id, end, index)])
            file.datasync()
        finally:
            file.close()
        return info.seal(index, end)

    def _new_ledger(self, number: int) -> FrameWriter:
        header = FileHeader(self.uuid, number, self.epoch, self._clock.wall_ms(), 0)
        path = ledger_path(self._directory, number)
        reserve = min(self._settings.preallocate_bytes, self._settings.ledger_bytes_max)
        file = create_frame_file(self._files, path, LEDGER_MAGIC, header, reserve)
        return FrameWriter(file, number, self.epoch, next_entry=0, end=FILE_HEADER_BYTES, preallocate_bytes=reserve)

    def _refuse_entries(self, number: int) -> None:
        """A file that no list names may go only if it holds nothing: else the metadata is older than the log."""
        file = self._files.open(ledger_path(self._directory, number))
        try:
            if not holds_frames(file, number):
                return
        finally:
            file.close()
        raise Corruption(
            f"{self._directory / ledger_name(number)} holds entries, but the metadata does not know it",
            hint="nothing was changed; the metadata file is older than the log, restore the newest one",
        )
