"""The managed log: one owner appends, in order, into ledgers that roll; what was acknowledged survives any crash.

Open, roll, trim and close follow the numbered orders of docs/formats/ledger.md. An owner holds a lock and an epoch; the epoch
is durable in the metadata store before it is used. A deposed owner learns of it before it acknowledges anything more:
every append, read and change of it ends with `Fenced`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, Fenced
from penstock.files import REAL_FILES, Buffer, Files, typed_errors
from penstock.log.append.appender import Appender
from penstock.log.append.request import AppendRequest, Span, Terminated
from penstock.log.attached import AttachedParts
from penstock.log.cursors.cursor import Cursor
from penstock.log.cursors.opening import Start
from penstock.log.cursors.table import CursorInfo, CursorTable
from penstock.log.deletion import delete_log, remove_log
from penstock.log.frames.format import BODY_BYTES_MAX, Changes, Entry, total_bytes
from penstock.log.ledgers import holds
from penstock.log.ledgers.info import LedgerList
from penstock.log.metrics import forget_log, watch_log
from penstock.log.offload.offloader import Offloader, OffloadProgress
from penstock.log.open_logs import OpenLogs
from penstock.log.opening import take_ownership
from penstock.log.pending import Pending
from penstock.log.position import Position
from penstock.log.read.cache import cache_for
from penstock.log.read.positions import first_position
from penstock.log.read.reader import LogReader, default_metadata_path, log_key
from penstock.log.read.tail import Tail
from penstock.log.retention.maintenance import Maintenance
from penstock.log.retention.trim import Trimmer
from penstock.log.retention.truncate import Cutter
from penstock.log.settings import LogSettings
from penstock.log.statistics import LogStatistics
from penstock.metadata import MetadataStore, SqliteMetadata


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
        self._tail = Tail()
        self.attached = AttachedParts(f"log {directory}")
        self._cursors: CursorTable | None = None
        self._metadata = metadata
        self._resources = resources
        self._cache = cache_for(files)
        self._registry_key: tuple[int, Path] | None = None
        self._reader: LogReader | None = None
        self._reader_lock = threading.Lock()
        with contextlib.ExitStack() as on_error:
            owned = take_ownership(
                directory, settings=settings, files=files, clock=clock, metadata=metadata, resources=on_error
            )
            on_error.pop_all()
        self._end_file, self._catalog, self._store = owned.end_file, owned.catalog, owned.store
        resources.callback(self._end_file.close)
        self._trimmer = Trimmer(
            directory.name,
            settings=settings,
            clock=clock,
            metadata=metadata,
            catalog=self._catalog,
            store=self._store,
            on_gone=self._gone,
        )
        self._trimmer.delete_tombstoned()
        self._offloader = Offloader(
            f"log {directory}",
            settings=settings,
            clock=clock,
            catalog=self._catalog,
            store=self._store,
            check_owner=self.check_owner,
        )
        self._maintenance = Maintenance(f"log {directory}", settings.maintenance_interval_seconds, self.maintain)
        self._appender = Appender(
            f"log {directory}",
            settings=settings,
            clock=clock,
            files=files,
            store=self._store,
            catalog=self._catalog,
            end_file=self._end_file,
            cache=self._cache,
            ledger=owned.ledger,
            last=owned.last,
            on_roll=self._rolled,
        )
        self._appender.on_publish = self._tail.notify
        watch_log(self)
        resources.callback(forget_log, self)

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

        A log that this process owns already is given again, as it is: each opener closes it once. Raises `Unavailable`
        while another process holds the log, `Corruption` where durable bytes are damaged.
        """
        directory = Path(directory)
        key = (id(files), directory.absolute())

        def make() -> Log:
            return cls._open(directory, settings or LogSettings(), files, clock, metadata)

        log = _OPEN_LOGS.open(key, cls._usable, make)
        log._registry_key = key
        return log

    @classmethod
    def _open(
        cls, directory: Path, settings: LogSettings, files: Files, clock: Clock, metadata: MetadataStore | None
    ) -> Log:
        with typed_errors(f"log {directory}"), contextlib.ExitStack() as resources:
            files.make_directory(directory)
            resources.enter_context(files.lock(directory / "lock"))
            if metadata is None:
                metadata = SqliteMetadata(default_metadata_path(directory))
                resources.callback(metadata.close)
            found = metadata.get(log_key(directory))
            if found is not None and LedgerList.decode(found.value).deleted:
                remove_log(directory, files, metadata)  # a deletion that was cut: it comes first
            log = cls(directory, settings=settings, files=files, clock=clock, metadata=metadata, resources=resources)
            log._resources = resources.pop_all()  # from here on close() releases them
            return log

    def _usable(self) -> bool:
        return (self._appender.error is None or isinstance(self._appender.error, Terminated)) and (
            self._catalog.fenced is None
        )

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def uuid(self) -> uuid.UUID:
        return self._catalog.list.uuid

    @property
    def epoch(self) -> int:
        return self._catalog.list.epoch

    @property
    def name(self) -> str:
        return self._directory.name

    @property
    def directory(self) -> Path:
        return self._directory

    @property
    def metadata(self) -> MetadataStore:
        return self._metadata

    @property
    def files(self) -> Files:
        return self._files

    @property
    def clock(self) -> Clock:
        return self._clock

    def end(self) -> Position:
        """The last durable entry; `(ledger, -1)` where there is none."""
        return self._appender.last

    # -- appends -------------------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer | Sequence[Buffer],
        changes: Changes = (),
        *,
        wait: bool = True,
        after: Pending[Any] | None = None,
    ) -> Pending[Position]:
        """Appends one entry; the position comes once entry and changes are durable.

        The buffers must not change until then. Waits while `waiting_bytes_max` wait, unless `wait` is off: then call
        `wait_for_room` before taking a lock that callbacks want. Raises what stopped the log before. An error of the open
        ledger is not seen here: the entry goes into a new one. Where the append `after` failed, this one does too, even
        if the log goes on: it stands on it.
        """
        if type(data) is bytes and not changes:
            size = len(data)
        else:
            size = _checked_size((data,) if isinstance(data, bytes | bytearray | memoryview) else data)
            size += total_bytes(changes)
        if size > BODY_BYTES_MAX:
            raise BadInput(f"an entry of {size} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
        item = AppendRequest(data, changes, size, 0)
        if after is not None:
            item.after = after
        self._appender.submit(item, wait=wait)
        return item

    def append_many(self, entries: Sequence[Buffer], *, wait: bool = True) -> Pending[Span]:
        """Appends entries one after the other into one ledger, with one answer: where the first and the last are.

        The fast way for many small ones. A crash before the answer may leave a part of them, from the first on.
        """
        if not entries:
            raise BadInput("an empty batch cannot be appended", hint="append at least one entry")
        size = _checked_size(entries)
        if max(map(len, entries)) > BODY_BYTES_MAX:
            raise BadInput("an entry of the batch is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
        item = AppendRequest(entries, (), size, len(entries))
        self._appender.submit(item, wait=wait)
        return cast("Pending[Span]", item)

    def wait_for_room(self) -> None:
        """Returns once less than `waiting_bytes_max` waits."""
        self._appender.wait_for_room()

    # -- reads ---------------------------------------------------------------------------------------------------

    def read(self, start: Position, end: Position) -> Iterator[Entry]:
        """The durable entries from `start` to `end`, both included. Raises `Fenced` where another owner came."""
        self.check_owner()
        return self.reader().read(start, end)

    def reader(self) -> LogReader:
        """A reader of this log that shares its metadata store; closed with the log."""
        with self._reader_lock:
            if self._reader is None:
                self._reader = LogReader(
                    self._directory,
                    self._files,
                    self._metadata,
                    owns_metadata=False,
                    store=self._store,
                    cache=self._cache,
                    read_attempts_max=self._settings.read_attempts_max,
                )
                self._resources.callback(self._reader.close)
            return self._reader

    def check_owner(self) -> None:
        """Raises `Fenced` where another owner came. Cheap: one small read."""
        if isinstance(self._appender.error, Fenced):
            raise self._appender.error
        if self._catalog.fenced is not None:
            raise self._catalog.fenced
        self._end_file.check()

    def statistics(self) -> LogStatistics:
        listed, counters = self._catalog.list, self._appender.counters
        views = self.reader().ledgers()
        return LogStatistics(
            entries=sum(view.entries for view in views),
            bytes=sum(view.frames_end for view in views),
            ledgers=len(views),
            first=first_position(views),
            last_confirmed=self.end(),
            waiting_bytes=self._appender.waiting_bytes,
            appended_entries=counters.entries,
            appended_bytes=counters.bytes,
            commits=counters.groups,
            rolls=counters.rolls,
            ledger_switches=counters.switches,
            failed_deletes=self._trimmer.failed_deletes + self._offloader.failed_deletes,
            deleting=len(listed.deleting),
            cache_hits=self._cache.hits,
            cache_misses=self._cache.misses,
            cache_bytes=self._cache.bytes,
            terminated=listed.terminated,
            offloaded_ledgers=sum(info.is_offloaded for info in listed.ledgers),
            offloaded_bytes=sum(info.frames_end for info in listed.ledgers if info.is_offloaded),
            discarded=len(listed.discarded),
            offload_failures=self._offloader.failures,
            offload_error=str(self._offloader.last_error or ""),
            offloading=self._offloader.progress,
        )

    # -- cursors -------------------------------------------------------------------------------------------------

    def open_cursor(self, name: str, start: Start = "earliest", *, durable: bool = True) -> Cursor:
        """The cursor of that name, made at `start` where it is new; closed with the log. Idempotent.

        `start`: "earliest", "latest" or a position, after which everything is unread. One that is not durable is a new
        one each time, forgotten when it is closed. Raises `Unavailable` while another process owns the cursor.
        """
        self.check_owner()
        return self._cursor_table().open(name, start, durable=durable)

    def cursors(self) -> list[CursorInfo]:
        """Every durable cursor, whoever owns it; by name."""
        return self._cursor_table().infos()

    def opened_cursors(self) -> list[Cursor]:
        """The cursors that are open in this process, for statistics."""
        return self._cursor_table().opened()

    def delete_cursor(self, name: str) -> None:
        """Removes the cursor for good. Raises `BadInput` where there is none, `Unavailable` while another process has it."""
        self.check_owner()
        self._cursor_table().delete(name)

    def expire_cursors(self, inactive_seconds: float) -> list[str]:
        """Deletes the cursors that nobody has open and that neither read nor acked for so long; their names."""
        self.check_owner()
        return self._cursor_table().expire(inactive_seconds)

    def _cursor_table(self) -> CursorTable:
        reader = self.reader()
        with self._reader_lock:
            if self._cursors is None:
                self._cursors = CursorTable(
                    reader, files=self._files, clock=self._clock, tail=self._tail, on_moved=self.trim_soon
                )
            return self._cursors

    # -- what is kept --------------------------------------------------------------------------------------------

    def roll(self) -> bool:
        """Seals the open ledger and starts the next; False where it is empty, or the metadata store does not answer."""
        return self._appender.run(self._appender.roll).result()

    def trim(self) -> list[int]:
        """Removes ledgers that every cursor and pin has passed and retention does not keep; which they were."""
        self.check_owner()
        gone = self._trimmer.trim()
        self._offloader.discard()
        return gone

    def offload(
        self, url: str | None = None, *, keep_bytes: int = 0, progress: Callable[[OffloadProgress], None] | None = None
    ) -> list[int]:
        """Copies sealed ledgers beyond the newest `keep_bytes` to the object store; which they were.

        Also lets local files go whose `offload_deletion_lag_seconds` are over. `url`: that of the settings where it is not
        given. Raises `OffloadInProgress` while another one runs, `Unavailable` where the store does not answer, and
        `Corruption` where a local file is damaged; what was copied before stays so.
        """
        self.check_owner()
        url = url or self._settings.offload_url
        if url is None:
            raise BadInput("nothing says where ledgers go to", hint="give a URL, or set offload_url")
        return self._offloader.offload(url, keep_bytes, progress)

    def trim_soon(self) -> None:
        """A cursor moved: the maintenance looks at once what may go."""
        self._maintenance.wake()

    def maintain(self) -> None:
        """What the maintenance thread does at its intervals: age of the open ledger, cursors that nobody uses, trim,
        deletes that failed, offload."""
        self._appender.run(self._appender.roll_if_old).result()
        self.check_owner()
        if self._settings.cursor_inactive_seconds_max is not None:
            self.expire_cursors(self._settings.cursor_inactive_seconds_max)
        self._trimmer.trim()
        self._offloader.wake()

    def clear(self) -> None:
        """Removes every entry, whatever cursors have read; a cursor goes on with what comes after. Refused under a pin."""
        self.check_owner()
        if pinned := self.pins():
            raise BadInput(f"the log is pinned by {', '.join(sorted(pinned))}", hint="unpin it first")
        self.roll()
        self._trimmer.clear()
        self._offloader.discard()

    def pin(self, name: str, position: Position) -> None:
        """Keeps entries at and after `position` until `unpin`; durable. Raises `BadInput` where they are gone."""
        self.check_owner()
        holds.put_pin(self._metadata, self.name, name, position)

    def unpin(self, name: str) -> None:
        holds.remove_pin(self._metadata, self.name, name)
        self.trim_soon()

    def pins(self) -> dict[str, Position]:
        return holds.pins(self._metadata, self.name)

    def _gone(self, ledger_ids: set[int]) -> None:
        self._cache.drop(self.uuid, ledger_ids)
        self.reader().refresh()

    def check_truncate(self, position: Position, *, own: Collection[str] = (), force: bool = False) -> None:
        """Raises what `cut` would, as far as can be said now."""
        self.check_owner()
        self._cutter().check(position, own=own, force=force)

    def truncate(self, position: Position, *, own: Collection[str] = (), force: bool = False) -> list[int]:
        """Removes every entry after `position`, for good; the ledgers that went as a whole.

        Raises `HeldBeyond` where a cursor or pin stands beyond it, unless told to `force`: then cursors are moved to the
        new end first. `own`: pins that the caller moves itself. State on this log is taken back by its own `truncate`.
        """
        self.check_owner()
        if (kind := self.attached.other_than(own)) is not None:
            raise BadInput(
                f"the {kind} of log {self.name} is open", hint=f"truncate the {kind}: it takes the log with it"
            )
        cutter = self._cutter()
        if force:
            for hold in cutter.beyond(position, own):
                if hold.kind == "cursor":
                    self.open_cursor(hold.name).reset(self.reader().next(position)).result()
        gone = self._appender.run(lambda: cutter.cut(position, own=own, force=force)).result()
        self._gone(gone)
        self._trimmer.delete_tombstoned()
        self._offloader.discard()
        return sorted(gone)

    def _cutter(self) -> Cutter:
        return Cutter(
            self.name,
            metadata=self._metadata,
            catalog=self._catalog,
            store=self._store,
            appender=self._appender,
            reader=self.reader(),
        )

    def _rolled(self) -> None:
        self._maintenance.wake()
        self.attached.rolled()

    # -- properties, terminate, close, delete --------------------------------------------------------------------

    def properties(self) -> dict[str, str]:
        return dict(self._catalog.list.properties)

    def set_properties(self, properties: Mapping[str, str | None]) -> dict[str, str]:
        """Changes these and keeps the others; None removes one. Durable when it returns, with all of them."""

        def update(listed: LedgerList) -> LedgerList:
            merged = {**dict(listed.properties), **properties}
            kept = tuple(sorted((key, value) for key, value in merged.items() if value is not None))
            return dataclasses.replace(listed, properties=kept)

        return dict(self._catalog.change(update).properties)

    def terminate(self) -> Position:
        """Nothing is appended any more, ever; gives the last entry. Readers at the end are told."""
        return self._appender.run(self._appender.terminate).result()

    def terminated(self) -> bool:
        return self._catalog.list.terminated

    def close(self) -> None:
        """Finishes what waits, seals the ledger and gives up ownership, with the last opener. Raises what went wrong
        at the last moment."""
        if self._registry_key is not None and not _OPEN_LOGS.leave(self._registry_key, self):
            return
        already_failed = self._appender.error
        with contextlib.ExitStack() as rest:
            rest.callback(self._resources.close)
            rest.callback(self._appender.close)
            rest.callback(self._offloader.close)
            rest.callback(self._maintenance.close)
            if self._cursors is not None:
                rest.callback(self._cursors.close)
            rest.callback(self.attached.close)
        error = self._appender.error
        if error is not None and error is not already_failed:
            raise error

    @staticmethod
    def delete(
        directory: Path, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK, metadata: MetadataStore | None = None
    ) -> None:
        """Removes a log that nobody has open, with its cursors and metadata. A crash inside it resumes."""
        delete_log(directory, files, clock, metadata)


_OPEN_LOGS: OpenLogs[Log] = OpenLogs()
os.register_at_fork(after_in_child=_OPEN_LOGS.forked)


def _checked_size(buffers: Sequence[Buffer]) -> int:
    if set(map(type, buffers)) == {bytes}:
        return sum(map(len, buffers))
    size = 0
    for buffer in buffers:
        if isinstance(buffer, memoryview) and (buffer.itemsize != 1 or not buffer.c_contiguous):
            raise BadInput("a buffer of an entry must be contiguous bytes")
        size += len(buffer)
    return size


__all__ = ["Log", "LogSettings", "LogStatistics"]
