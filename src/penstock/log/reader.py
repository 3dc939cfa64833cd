"""Reading a log, from any process: never waits for the owner, never sees what is not durable.

The end comes from the published slot, one small read; the ledger list is read again only when the slot names a ledger
that this reader does not know. Entries below the durable end that do not decode are corruption, named and never skipped.
"""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from penstock.errors import BadInput, Unavailable
from penstock.files import REAL_FILES, File, Files
from penstock.log.file_header import FILE_HEADER_BYTES, LEDGER_MAGIC, corruption, read_file_header
from penstock.log.frame import HEADER_BYTES, BadFrame, Entry, FrameInfo, Header, decode_changes, decode_header
from penstock.log.frame_reader import BadFrameAt, read_frames, scan_frames
from penstock.log.ledger import Footer, LedgerInfo, LedgerList, ledger_path, read_footer
from penstock.log.position import Position
from penstock.log.synced import EndFile, SyncedEnd
from penstock.metadata import MetadataStore, SqliteMetadata

END_NAME = "end"
_FOOTERS_MAX = 16
_HINT_EVERY = 64


def log_key(directory: Path) -> str:
    """Where the metadata store keeps the ledger list of the log in `directory`."""
    return f"log/{directory.name}"


def default_metadata_path(directory: Path) -> Path:
    return directory.parent / "metadata.sqlite"


class LedgerView(NamedTuple):
    """A ledger as a reader sees it now: `entries` durable ones, in `frames_end` bytes."""

    info: LedgerInfo
    entries: int
    frames_end: int


class LogReader:
    """A read-only view of a log. Thread-safe."""

    def __init__(self, directory: Path, files: Files, metadata: MetadataStore, owns_metadata: bool) -> None:
        self._directory = directory
        self._files = files
        self.metadata = metadata
        self._owns_metadata = owns_metadata
        self._lock = threading.Lock()
        self._footers: OrderedDict[int, Footer] = OrderedDict()
        self._hints: dict[int, tuple[list[int], list[int]]] = {}  # open ledgers: entries and their offsets, ascending
        self._list = self._load()
        self._end_file = EndFile.open(files, directory / END_NAME)
        self._slot: SyncedEnd | None = None

    @classmethod
    def open(cls, directory: Path, files: Files = REAL_FILES, metadata: MetadataStore | None = None) -> LogReader:
        """Raises `Unavailable` while there is no log yet."""
        owns = metadata is None
        if metadata is None:
            metadata = SqliteMetadata(default_metadata_path(directory), must_exist=True)
        try:
            return cls(directory, files, metadata, owns)
        except BaseException:
            if owns:
                metadata.close()
            raise

    @property
    def uuid(self) -> UUID:
        return self._list.uuid

    @property
    def name(self) -> str:
        return self._directory.name

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def first(self) -> Position:
        """The first entry that is kept; where there is none yet, the address of the first to come."""
        views = self.ledgers()
        return next(
            (Position(v.info.id, 0) for v in views if v.entries), Position(views[-1].info.id if views else 0, 0)
        )

    @property
    def complete(self) -> bool:
        """Whether the log still holds its very first entry."""
        return self._list.trimmed_below == 0

    def end(self) -> Position:
        """The last durable entry; `(ledger, -1)` where there is none. Cheap: one small read."""
        slot = self._read_slot()
        if slot is not None:
            return slot.last
        # Nothing was ever published, or a power cut tore the first slot: the list knows the sealed ledgers.
        views = self.ledgers()
        for view in reversed(views):
            if view.entries:
                return Position(view.info.id, view.entries - 1)
        return Position(views[-1].info.id if views else 0, -1)

    def ledgers(self) -> list[LedgerView]:
        """Every ledger with what is durable in it, as of now."""
        slot = self._read_slot()
        with self._lock:
            known = any(ledger.id == slot.file_id for ledger in self._list.ledgers) if slot else False
            if not known:  # a slot names a ledger only after the list does
                self._list = self._load()
            return [self._view(ledger, slot) for ledger in self._list.ledgers]

    def read(self, start: Position, end: Position, max_bytes: int | None = None) -> Iterator[Entry]:
        """The entries from `start` to `end`, both included; `start` may be `(L, -1)`.

        With `max_bytes` it stops after the entry that reaches that much data. Raises `BadInput` where `end` is beyond
        the durable end or `start` was trimmed, and `Corruption` where an entry does not match its checksum.
        """
        total = 0
        for view, first, last in self._spans(start, end):
            file = self._open(view.info)
            try:
                offset, stop = self._locate(file, view, first, last)
                for frame in read_frames(file, view.info.id, offset, first, stop):
                    header = frame.header
                    if not view.info.sealed:
                        self._remember(view.info.id, frame.offset, header)
                    position = Position(view.info.id, header.entry_id)
                    yield Entry(position, frame.data, decode_changes(frame.changes), header.wall_ms)
                    total += header.data_len
                    if max_bytes is not None and total >= max_bytes:
                        return
                    if header.entry_id == last:
                        break
            except BadFrameAt as error:
                raise corruption(file.path, error.offset, error.reason) from error
            finally:
                file.close()

    def scan(self, start: Position, end: Position) -> Iterator[FrameInfo]:
        """As `read`, without the data: for those who follow state or sizes alone. Far less is read."""
        for view, first, last in self._spans(start, end):
            file = self._open(view.info)
            try:
                offset, stop = self._locate(file, view, first, last)
                for at, header, changes in scan_frames(file, view.info.id, offset, first, stop):
                    if not view.info.sealed:
                        self._remember(view.info.id, at, header)
                    position = Position(view.info.id, header.entry_id)
                    yield FrameInfo(position, header.data_len, decode_changes(changes), header.wall_ms)
                    if header.entry_id == last:
                        break
            except BadFrameAt as error:
                raise corruption(file.path, error.offset, error.reason) from error
            finally:
                file.close()

    def next(self, position: Position) -> Position:
        """The address after `position`, across the ends of ledgers; it may not be written yet."""
        views = self.ledgers()
        for view in views:
            if view.info.id < position.ledger_id:
                continue
            following = position.entry_id + 1 if view.info.id == position.ledger_id else 0
            if not view.info.sealed or following < view.entries:
                return Position(view.info.id, following)
        # After the last entry of the last ledger, and no ledger is open: the next owner's ledger will follow. This
        # address reads as "whatever comes after it".
        return Position(position.ledger_id, position.entry_id + 1)

    def close(self) -> None:
        self._end_file.close()
        if self._owns_metadata:
            self.metadata.close()

    def _read_slot(self) -> SyncedEnd | None:
        slot = self._end_file.read()
        with self._lock:
            held = self._slot
            if held is None or (slot is not None and (slot.epoch, slot.commits) > (held.epoch, held.commits)):
                self._slot = slot  # a slot that is being rewritten may hide for a moment: the end never goes back
            return self._slot

    def _load(self) -> LedgerList:
        found = self.metadata.get(log_key(self._directory))
        if found is None:
            raise Unavailable(f"there is no log at {self._directory} yet", hint="has the capture process started once?")
        return LedgerList.decode(found.value)

    @staticmethod
    def _view(info: LedgerInfo, slot: SyncedEnd | None) -> LedgerView:
        if info.sealed:
            return LedgerView(info, info.entries, info.frames_end)
        if slot is not None and slot.file_id == info.id:
            entries = slot.last.entry_id + 1 if slot.last.ledger_id == info.id else 0
            return LedgerView(info, entries, slot.synced_end)
        return LedgerView(info, 0, FILE_HEADER_BYTES)

    def _spans(self, start: Position, end: Position) -> list[tuple[LedgerView, int, int]]:
        """The part of each ledger that lies between the two, (view, first entry, last entry)."""
        views = self.ledgers()
        if start.ledger_id < self._list.trimmed_below:
            raise BadInput(
                f"the log has no entry {start} any more", hint=f"it starts at ledger {self._list.trimmed_below}"
            )
        spans = []
        reached = end.entry_id < 0
        for view in views:
            if not start.ledger_id <= view.info.id <= end.ledger_id:
                continue
            first = max(start.entry_id, 0) if view.info.id == start.ledger_id else 0
            last = view.entries - 1
            if view.info.id == end.ledger_id:
                reached = reached or end.entry_id <= last
                last = min(last, end.entry_id)
            if first <= last:
                spans.append((view, first, last))
        if not reached and start <= end:
            raise BadInput(f"entry {end} is beyond the durable end of the log", hint="ask for its end() first")
        return spans

    def _open(self, info: LedgerInfo) -> File:
        path = ledger_path(self._directory, info.id)
        try:
            file = self._files.open(path)
        except FileNotFoundError as error:
            raise corruption(path, 0, "the ledger list names this file, but it is missing") from error
        try:
            read_file_header(file, LEDGER_MAGIC, self.uuid, info.id)
        except BaseException:
            file.close()
            raise
        return file

    def _locate(self, file: File, view: LedgerView, first: int, last: int) -> tuple[int, int]:
        """The offset of entry `first`, and an offset at which reading up to `last` may stop."""
        if view.info.sealed:
            footer = self._footer(file, view.info)
            stop = int(footer.offsets[last + 1]) if last + 1 < view.entries else footer.frames_end
            return int(footer.offsets[first]), stop
        entry, offset = 0, FILE_HEADER_BYTES
        with self._lock:
            entries, offsets = self._hints.get(view.info.id, ([], []))
            at = bisect.bisect_right(entries, first) - 1
            if at >= 0:
                entry, offset = entries[at], offsets[at]
        if first - entry > _HINT_EVERY:
            entry, offset = max((entry, offset), self._published_hint(file, view, first))
        if entry < first:
            for at_offset, header, _ in scan_frames(file, view.info.id, offset, entry, view.frames_end):
                self._remember(view.info.id, at_offset, header)
                offset = at_offset + header.frame_bytes
                if header.entry_id + 1 == first:
                    break
        return offset, view.frames_end

    def _published_hint(self, file: File, view: LedgerView, first: int) -> tuple[int, int]:
        """The nearest published place at or before entry `first`, once the entry is seen to be there."""
        for entry, offset in reversed(self._end_file.hints(view.info.id)):
            if entry <= first and FILE_HEADER_BYTES <= offset < view.frames_end:
                with contextlib.suppress(BadFrame):
                    if decode_header(file.read_at(offset, HEADER_BYTES), 0, view.info.id).entry_id == entry:
                        return entry, offset
                break
        return 0, FILE_HEADER_BYTES

    def _footer(self, file: File, info: LedgerInfo) -> Footer:
        with self._lock:
            footer = self._footers.get(info.id)
            if footer is not None:
                self._footers.move_to_end(info.id)
                return footer
        footer = read_footer(file, info)
        with self._lock:
            self._footers[info.id] = footer
            self._hints.pop(info.id, None)
            while len(self._footers) > _FOOTERS_MAX:
                self._footers.popitem(last=False)
        return footer

    def _remember(self, ledger_id: int, offset: int, header: Header) -> None:
        """Keeps where the next entry is, so that the next read of an open ledger need not start at its head."""
        entry = header.entry_id + 1
        with self._lock:
            entries, offsets = self._hints.setdefault(ledger_id, ([], []))
            if not entries or entry > entries[-1]:
                if len(entries) > 1 and entries[-1] - entries[-2] < _HINT_EVERY:
                    entries[-1], offsets[-1] = entry, offset + header.frame_bytes
                else:
                    entries.append(entry)
                    offsets.append(offset + header.frame_bytes)
