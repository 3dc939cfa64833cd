"""Reads a log from any process: never waits for the owner, and never shows what is not durable.

The end of the log comes from the slot in its `end` file, one small read. The ledger list is read again only when the slot
names a ledger or a truncation that this reader does not know, or when a ledger is gone. So a reader that looks again never
serves an entry that a truncation removed: no position is given twice, the first n entries of a ledger never change, and
whatever is kept in memory of a ledger is used only as far as the present list has its entries. An entry below the durable end that does not decode
raises `Corruption` and is never skipped. Reading a trimmed entry raises `Trimmed`, which names the first entry kept.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

from penstock.arguments import check_callable, check_component, check_count, check_type, checked_path
from penstock.errors import BadInput, Closed, Corruption, PenstockError, Unavailable
from penstock.files import REAL_FILES, Files
from penstock.log.closed import ClosedPart
from penstock.log.frames.end_file import EndFile, SyncedEnd
from penstock.log.frames.format import Entry, FrameInfo, Header, decode_changes
from penstock.log.ledgers.footer import Footer
from penstock.log.ledgers.holds import log_list_key
from penstock.log.ledgers.info import LedgerInfo, LedgerList
from penstock.log.ledgers.store import LedgerStore
from penstock.log.offload.store import TieredLedgerStore
from penstock.log.position import Position, Span, check_position
from penstock.log.read.cache import ReadCache, cache_for, cache_key
from penstock.log.read.locator import Locator
from penstock.log.read.positions import LedgerView, LedgerViews, view_of
from penstock.log.read.run import FrameRun
from penstock.log.read.run_reader import READ_ATTEMPTS_MAX, RunReader
from penstock.log.read.search import Search
from penstock.metadata import MetadataStore, SqliteMetadata
from penstock.observe.metrics import METRICS

END_NAME = "end"

_logger = logging.getLogger(__name__)


def log_key(directory: Path) -> str:
    """The key of the ledger list of the log in `directory`."""
    return log_list_key(directory.name)


def default_metadata_path(directory: Path) -> Path:
    return directory.parent / "metadata.sqlite"


def check_components(files: object, metadata: object) -> None:
    """Raises `BadInput` where the two are no file system and no metadata store (or None)."""
    check_component("files", files, "make_directory")
    check_component("metadata", metadata, "transaction", optional=True)


class Trimmed(BadInput):
    """The entry is not kept any more. `first` is the first entry that is."""

    def __init__(self, position: Position, first: Position) -> None:
        super().__init__(f"the log has no entry {position} any more", hint=f"it starts at {first}")
        self.first = first


class LogReader:
    """A read-only view of a log. Thread-safe."""

    def __init__(
        self,
        directory: Path,
        files: Files,
        metadata: MetadataStore,
        owns_metadata: bool,
        *,
        store: LedgerStore | None = None,
        cache: ReadCache | None = None,
        read_attempts_max: int = READ_ATTEMPTS_MAX,
    ) -> None:
        self._directory = directory
        self.files = files
        self.metadata = metadata
        self.cache = cache or cache_for(files)
        self._owns_metadata = owns_metadata
        self._read_attempts_max = read_attempts_max
        self._lock = threading.Lock()
        self._closed = False
        self._slot: SyncedEnd | None = None
        self._raw = b""  # the list as the metadata store has it
        self._list = self._load()
        self._views = self._viewed()
        self._reloaded_for: SyncedEnd | None = None
        self.cache_key = cache_key(self._list.uuid, directory)
        self._store = store or TieredLedgerStore(directory, files, self._list.uuid)
        self._end_file = self._open_end_file()
        self._search = Search(self)
        self._told: set[LedgerInfo] = set()  # ledgers of which it was said that entries are passed over
        self._locator = Locator(self._end_file)

    @classmethod
    def open(
        cls,
        directory: Path,
        files: Files = REAL_FILES,
        metadata: MetadataStore | None = None,
        *,
        read_attempts_max: int = READ_ATTEMPTS_MAX,
    ) -> LogReader:
        """Raises `Unavailable` while there is no log yet. `read_attempts_max`: of each copy of a ledger."""
        directory = checked_path("the directory of a log", directory)
        check_count("read_attempts_max", read_attempts_max, least=1)
        check_components(files, metadata)
        owns = metadata is None
        if metadata is None:
            metadata = SqliteMetadata(default_metadata_path(directory), must_exist=True)
        try:
            return cls(directory, files, metadata, owns, read_attempts_max=read_attempts_max)
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
        """The first entry that the log keeps; in an empty log, the address of the first entry to come."""
        self.refresh()
        return max(self.ledgers().first, Position(self._list.trimmed_below, 0))  # a closed log may have no ledger left

    @property
    def truncations(self) -> int:
        """How often entries were taken from the log's end, as far as this reader knows by now."""
        return self._list.truncations

    @property
    def complete(self) -> bool:
        """Whether the log still holds its very first entry."""
        return self._list.trimmed_below == 0

    @property
    def trimmed_below(self) -> int:
        """All ledgers with lower numbers were trimmed, and the last of them was not empty; 0: nothing was trimmed."""
        return self._list.trimmed_below

    @property
    def trimmed_to(self) -> Position | None:
        """The last entry that was trimmed; None where nothing was, or where the list does not say."""
        return self._list.trimmed_to

    def end(self) -> Position:
        """The last durable entry; `(ledger, -1)` where there is none. Cheap: one small read."""
        slot = self._read_slot()
        if slot is not None and slot.truncations >= self._list.truncations:
            return slot.last
        # Nothing was published yet, or a power cut tore the first slot, or a crash came between a truncation and its
        # slot: the list still knows the sealed ledgers.
        views = self.ledgers()
        return views.end or Position(views[-1].info.id if views else 0, -1)

    def ledgers(self) -> LedgerViews:
        """Every ledger, with what is durable in it now."""
        slot = self._read_slot()
        with self._lock:
            if self._is_behind(slot):
                self._reload()
                self._reloaded_for = slot
            if self._list.ledgers and not self._list.ledgers[-1].sealed:
                self._views = self._views.grown(view_of(self._list.ledgers[-1], slot))
            return self._views

    def refresh(self) -> None:
        """Reads the ledger list again, to learn what was trimmed, truncated or sealed meanwhile."""
        with self._lock:
            self._reload()

    def terminated(self) -> bool:
        """Whether the log was ended for good: nothing comes after its end. Asks the metadata store."""
        self.refresh()
        return self._list.terminated

    def properties(self) -> dict[str, str]:
        """The properties of the log, as of now."""
        self.refresh()
        return dict(self._list.properties)

    def read(self, start: Position, end: Position, max_bytes: int | None = None) -> Iterator[Entry]:
        """The entries from `start` to `end`, both included; `start` may be `(L, -1)`.

        With `max_bytes` it stops after the entry that reaches that much data. Raises `BadInput` where `end` is beyond
        the durable end, `Trimmed` where `start` is not kept any more, `Unavailable` where the disk refuses, and
        `Corruption` where an entry does not match its checksum.
        """
        self._check_open()
        check_count("max_bytes", max_bytes, optional=True)
        runs = self.runs(start, end, self)
        entries = itertools.chain.from_iterable(run.entries(low, high) for run, low, high in runs)
        return entries if max_bytes is None else _up_to(entries, max_bytes)

    def entries(self, start: Position, end: Position) -> Iterator[Entry]:
        """As `read`, for a look in passing: the cache does not expect this reader to go on there."""
        return itertools.chain.from_iterable(run.entries(low, high) for run, low, high in self.runs(start, end))

    def runs(
        self, start: Position, end: Position, consumer: object | None = None
    ) -> Iterator[tuple[FrameRun, int, int]]:
        """As `read`, without an object for each entry: (run, first entry, last entry), for callers that work on arrays.

        `consumer`: who will go on at `end`, for the cache.
        """
        for view, first, last in self._spans(start, end):
            yield from self._runs(view, first, last, consumer)

    def scan(self, start: Position, end: Position) -> Iterator[FrameInfo]:
        """As `read`, without the data, for callers that want only state changes or sizes. Far less is read."""
        for position, header, changes in self.scan_encoded(start, end):
            wall_ms = header.wall_ms
            yield FrameInfo(position, header.data_len, decode_changes(changes, wall_ms), wall_ms, header.messages)

    def scan_encoded(self, start: Position, end: Position) -> Iterator[tuple[Position, Header, bytes]]:
        """As `scan`, with the state changes encoded, as they stand in the frame: no object for each change."""
        for view, first, last in self._spans(start, end):
            yield from self._headers(view, first, last)

    def next(self, position: Position) -> Position:
        """The address after `position`, across the ends of ledgers; it may not be written yet."""
        check_position("position", position)
        return self.ledgers().next(position)

    def previous(self, position: Position) -> Position | None:
        """The entry before `position`; None where the log keeps none before it."""
        check_position("position", position)
        return self.ledgers().previous(position)

    def advance(self, position: Position, entries: int) -> Position:
        """The entry `entries` after `position`, at most the last one."""
        check_position("position", position)
        check_count("entries", entries)
        return self.ledgers().advance(position, entries)

    def nth(self, number: int) -> Position | None:
        """The entry with that number, counted from 0 at the first that is kept; None where there are not so many."""
        check_count("number", number)
        return self.ledgers().numbered(number)

    def count(self, after: Position, to: Position) -> int:
        """How many kept entries lie after `after`, up to and including `to`."""
        check_position("after", after)
        check_position("to", to)
        views = self.ledgers()
        return views.up_to(to) - views.up_to(after)

    def skipped(self, start: Position, end: Position) -> list[Span]:
        """The entries from `start` to `end` that were skipped because they cannot be read (`Log.skip`): readers pass over
        them."""
        check_position("start", start)
        check_position("end", end)
        spans = self.ledgers().skipped_spans()
        return [Span(max(a, start), min(b, end)) for a, b in spans if a <= end and b >= start]

    def find_newest(self, matches: Callable[[Entry], bool], after: Position | None = None) -> Position | None:
        """The newest entry for which `matches` holds; it must hold for every entry up to some point and for none after it.

        A binary search: reads about log2(n) entries. None where no entry matches. With `after`, only entries after that
        position are searched.
        """
        check_callable("matches", matches)
        if after is not None:
            check_position("after", after)
        return self._search.newest(matches, after)

    def find_by_time(self, wall_ms: int) -> Position | None:
        """The newest entry such that it and all entries before it were written at or before `wall_ms`, if there is one.

        Within a ledger the time index (of its footer; of the open ledger, in memory) leads to at most 64 headers. The index
        in memory first takes in what was appended since.
        """
        check_count("wall_ms", wall_ms)
        return self._search.newest_by_time(wall_ms)

    def footer(self, view: LedgerView) -> Footer:
        """The index of a sealed ledger."""
        self._check_open()
        check_type("view", view, LedgerView)
        runs = self._run_reader(view)
        try:
            return runs.footer()
        finally:
            runs.close()

    def close(self) -> None:
        """Every later call raises `Closed`. Closing it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            end_file, metadata = self._end_file, self.metadata
            closed: Any = ClosedPart(f"a reader of log {self._directory}")
            self._end_file = self.metadata = closed
        self.cache.forget(self)
        end_file.close()
        if self._owns_metadata:
            metadata.close()

    def __enter__(self) -> LogReader:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"a reader of log {self._directory} is closed")

    def _read_slot(self) -> SyncedEnd | None:
        slot = self._end_file.read()
        with self._lock:
            held = self._slot
            if held is None or (slot is not None and (slot.epoch, slot.commits) > (held.epoch, held.commits)):
                self._slot = slot  # a slot that is being rewritten may be unreadable: the end must not go back for that
            return self._slot

    def _open_end_file(self) -> EndFile:
        path = self._directory / END_NAME
        try:
            return EndFile.open(self.files, path)
        except FileNotFoundError as error:
            self._load()  # raises where the log was deleted meanwhile
            raise Corruption(
                f"{path} is missing, but the metadata knows this log", hint="restore the directory from a copy"
            ) from error
        except OSError as error:
            raise Unavailable(f"{path} cannot be read: {error}", hint="check the disk and its permissions") from error

    def _load(self) -> LedgerList:
        """The present list; the very list that is known where nothing was changed, so that it costs no decoding."""
        found = self.metadata.get(log_key(self._directory))
        if found is None:
            raise Unavailable(f"there is no log at {self._directory} yet", hint="has the capture process started once?")
        if found.value == self._raw:
            return self._list
        listed = LedgerList.decode(found.value)
        if listed.deleted:
            raise Unavailable(f"the log at {self._directory} is being deleted", hint="its deletion is not finished yet")
        self._raw = found.value
        return listed

    def _viewed(self) -> LedgerViews:
        return LedgerViews([view_of(info, self._slot) for info in self._list.ledgers], self._list.truncations)

    def _is_behind(self, slot: SyncedEnd | None) -> bool:
        """Whether the slot tells of something that our list does not know: the list says it before any slot does."""
        if slot is None or slot.truncations > self._list.truncations:
            return True
        # The ledger of the slot may be missing for good: a close removes a ledger that stayed empty.
        return self._views.find(slot.file_id) is None and slot != self._reloaded_for

    def _spans(self, start: Position, end: Position) -> list[tuple[LedgerView, int, int]]:
        """The entries from `start` to `end`, ledger by ledger: (view, first entry, last entry)."""
        check_position("start", start)
        check_position("end", end)
        views = self.ledgers()
        if start.ledger_id < self._list.trimmed_below:
            raise Trimmed(start, views.first)
        spans = []
        reached = end.entry_id < 0
        for view in views.since(start.ledger_id):
            if view.info.id > end.ledger_id:
                break
            first = max(start.entry_id, 0) if view.info.id == start.ledger_id else 0
            last = view.entries - 1
            if view.info.id == end.ledger_id:
                reached = reached or end.entry_id <= last
                last = min(last, end.entry_id)
            if view.info.skipped:
                spans += self._not_skipped(view, first, last)
            elif first <= last:
                spans.append((view, first, last))
        if not reached and start <= end:
            raise BadInput(f"entry {end} is beyond the durable end of the log", hint="ask for its end() first")
        return spans

    def _not_skipped(self, view: LedgerView, first: int, last: int) -> list[tuple[LedgerView, int, int]]:
        """The spans of those entries that were not skipped; tells that a read passes over the others."""
        info = view.info
        parts = list(info.kept_parts(first, last))
        if (skipped := last - first + 1 - sum(high - low + 1 for low, high in parts)) > 0:
            METRICS.log_passed_over_entries.inc(skipped)
            if info not in self._told:
                self._told.add(info)
                runs = ", ".join(f"{info.id}:{low} … {info.id}:{high}" for low, high in info.skipped)
                _logger.warning("readers of log %s pass over entries that were skipped: %s", self.name, runs)
        return [(view, low, high) for low, high in parts]

    def _run_reader(self, view: LedgerView) -> RunReader:
        self._check_open()  # an iteration over many ledgers ends with its reader
        return RunReader(
            self.cache_key,
            view,
            store=self._store,
            locator=self._locator,
            cache=self.cache,
            reread=self._reread,
            attempts_max=self._read_attempts_max,
        )

    def _runs(
        self, view: LedgerView, first: int, last: int, consumer: object | None
    ) -> Iterator[tuple[FrameRun, int, int]]:
        """The runs that hold entries `first` to `last`, each with its first and last entry to take: every entry comes once."""
        reader = self._run_reader(view)
        try:
            while first <= last:
                self._check_open()
                started = time.perf_counter()
                try:
                    run = reader.run(first, last)
                except (Corruption, Unavailable) as error:
                    for part in self._after_a_skip(view, first, last, error):
                        yield from self._runs(*part, consumer)
                    return
                stop = min(last, run.last)
                METRICS.log_read_entry_seconds.observe(time.perf_counter() - started, stop - first + 1)
                yield run, first, stop
                first = run.last + 1
                if consumer is not None:
                    self.cache.expect(consumer, self.cache_key, Position(view.info.id, first))
        finally:
            reader.close()

    def _headers(self, view: LedgerView, first: int, last: int) -> Iterator[tuple[Position, Header, bytes]]:
        """The headers and encoded changes of entries `first` to `last`."""
        runs = self._run_reader(view)
        try:
            for header, changes in runs.headers(first, last):
                first = header.entry_id + 1
                yield Position(view.info.id, header.entry_id), header, changes
        except (Corruption, Unavailable) as error:
            for part in self._after_a_skip(view, first, last, error):
                yield from self._headers(*part)
        finally:
            runs.close()

    def _after_a_skip(
        self, view: LedgerView, first: int, last: int, damage: PenstockError
    ) -> list[tuple[LedgerView, int, int]]:
        """For a read that met damage, or a disk that refuses: what is left to read where the damaged entries were skipped
        since; else raises `damage`."""
        self.refresh()
        now = self.ledgers().find(view.info.id)
        if now is None or now.info.skipped == view.info.skipped or last >= now.entries:
            raise damage
        return self._not_skipped(now, first, last)

    def _reread(self, view: LedgerView) -> LedgerView:
        """For a ledger of which a copy is gone: the ledger as the list has it now. Raises `Trimmed` where it has it no more."""
        with self._lock:
            self._reload()
            found = self._views.find(view.info.id)
            if found is not None:
                return found  # with its counts: a truncation may have taken entries
        raise Trimmed(Position(view.info.id, 0), self.ledgers().first)

    def _reload(self) -> None:
        """Called with the lock held."""
        before, self._list = self._list, self._load()
        if self._list is before:
            return
        self._views = self._viewed()
        self._locator.keep_only(self._list.ledgers)
        if gone := {info.id for info in before.ledgers} - {info.id for info in self._list.ledgers}:
            self.cache.drop(self.cache_key, gone)


def _up_to(entries: Iterator[Entry], max_bytes: int) -> Iterator[Entry]:
    total = 0
    for entry in entries:
        yield entry
        total += len(entry.data)
        if total >= max_bytes:
            return
