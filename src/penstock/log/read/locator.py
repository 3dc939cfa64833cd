"""Where an entry stands in its ledger: by the footer of a sealed ledger; by remembered places and hints in the open one."""

from __future__ import annotations

import bisect
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterable

from penstock.log.frames.end_file import EndFile
from penstock.log.frames.file_header import FILE_HEADER_BYTES
from penstock.log.frames.format import HEADER_BYTES, BadFrame, decode_header
from penstock.log.frames.reader import scan_frames
from penstock.log.ledgers.footer import Footer
from penstock.log.ledgers.info import LedgerInfo
from penstock.log.ledgers.store import LedgerFile
from penstock.log.read.positions import LedgerView

_FOOTERS_MAX = 16
_HINT_EVERY = 64


class Locator:
    """Thread-safe. Keeps a few footers, and the place of about every 64th entry that was read of an open ledger.

    A footer belongs to a ledger with so many entries: a truncated ledger has another one.
    """

    def __init__(self, end_file: EndFile) -> None:
        self._end_file = end_file
        self._lock = threading.Lock()
        self._footers: OrderedDict[tuple[int, int], Footer] = OrderedDict()  # by ledger and its number of entries
        self._places: dict[int, tuple[list[int], list[int]]] = {}  # open ledgers: entries and their offsets, ascending

    def locate(self, file: LedgerFile, view: LedgerView, first: int, last: int) -> tuple[int, int]:
        """The offset of entry `first`, and an offset at or after the end of entry `last`."""
        if view.info.sealed:
            footer = self.footer(file, view.info)
            stop = int(footer.offsets[last + 1]) if last + 1 < view.entries else footer.frames_end
            return int(footer.offsets[first]), stop
        entry, offset = 0, FILE_HEADER_BYTES
        with self._lock:
            entries, offsets = self._places.get(view.info.id, ([], []))
            at = bisect.bisect_right(entries, first) - 1
            if at >= 0:
                entry, offset = entries[at], offsets[at]
        if first - entry > _HINT_EVERY:
            entry, offset = max((entry, offset), self._hinted(file, view, first))
        if entry < first:
            for at_offset, header, _ in scan_frames(file, view.info.id, offset, entry, view.frames_end):
                offset = at_offset + header.frame_bytes
                self.remember(view.info.id, header.entry_id + 1, offset)
                if header.entry_id + 1 == first:
                    break
        return offset, view.frames_end

    def footer(self, file: LedgerFile, info: LedgerInfo) -> Footer:
        """The index of a sealed ledger."""
        key = (info.id, info.entries)
        with self._lock:
            footer = self._footers.get(key)
            if footer is not None:
                self._footers.move_to_end(key)
                return footer
        footer = file.footer(info)
        with self._lock:
            self._footers[key] = footer
            self._places.pop(info.id, None)
            while len(self._footers) > _FOOTERS_MAX:
                self._footers.popitem(last=False)
        return footer

    def remember(self, ledger_id: int, entry: int, offset: int) -> None:
        """Remembers where an entry is, so that the next read of the open ledger need not start at its head."""
        with self._lock:
            entries, offsets = self._places.setdefault(ledger_id, ([], []))
            if not entries or entry > entries[-1]:
                if len(entries) > 1 and entries[-1] - entries[-2] < _HINT_EVERY:
                    entries[-1], offsets[-1] = entry, offset
                else:
                    entries.append(entry)
                    offsets.append(offset)

    def keep_only(self, ledgers: Iterable[LedgerInfo]) -> None:
        """Forgets all other ledgers, and the places in those that are sealed: their footers know them."""
        is_open = {info.id: not info.sealed for info in ledgers}
        with self._lock:
            for key in [key for key in self._footers if key[0] not in is_open]:
                del self._footers[key]
            for number in [number for number in self._places if not is_open.get(number)]:
                del self._places[number]

    def _hinted(self, file: LedgerFile, view: LedgerView, first: int) -> tuple[int, int]:
        """The nearest hint of the `end` file at or before entry `first`, if the entry really stands there; else the head."""
        for entry, offset in reversed(self._end_file.hints(view.info.id)):
            if entry <= first and FILE_HEADER_BYTES <= offset < view.frames_end:
                with contextlib.suppress(BadFrame):
                    if decode_header(file.read_at(offset, HEADER_BYTES), 0, view.info.id).entry_id == entry:
                        return entry, offset
                break
        return 0, FILE_HEADER_BYTES
