"""The log: one owner appends, in order, into ledgers that roll; what was acknowledged survives any crash.

Open, roll, trim and close follow the numbered orders of docs/formats/ledger.md. An owner holds a lock and an epoch,
which is durable in the metadata store before it is used. Where another process becomes the owner all the same, the old
one notices before it acknowledges anything more: every later append, read and change through it raises `Fenced`.

`Log` is the handle with the calls; its parts are put together in parts.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from penstock.arguments import (
    check_amount,
    check_callable,
    check_component,
    check_count,
    check_name,
    check_names,
    check_texts,
    check_type,
    checked_path,
)
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput, Unavailable, fresh
from penstock.files import REAL_FILES, Buffer, Files, typed_errors
from penstock.log.append.checking import checked_append, checked_messages, checked_sequence, checked_size
from penstock.log.append.request import AppendRequest, Span
from penstock.log.closed import FORK_HINT, ClosedPart, closed_in_children
from penstock.log.cursors.cursor import Cursor
from penstock.log.cursors.opening import Start
from penstock.log.cursors.table import CursorInfo
from penstock.log.deletion import delete_log, remove_log
from penstock.log.frames.format import BODY_BYTES_MAX, Changes, Entry
from penstock.log.ledgers.info import LedgerList
from penstock.log.metrics import forget_log, watch_log
from penstock.log.offload.offloader import OffloadProgress
from penstock.log.open_logs import OpenLogs
from penstock.log.parts import LogParts, LogState
from penstock.log.pending import Pending
from penstock.log.position import Position, check_position
from penstock.log.read.reader import LogReader, check_components, default_metadata_path, log_key
from penstock.log.retention.skip import Skipping
from penstock.log.settings import LogSettings
from penstock.log.statistics import LogStatistics
from penstock.metadata import MetadataStore, SqliteMetadata

_NO_CHANGES: Changes = ()
_ONE_MESSAGE = 1  # compared by identity: what is equal to it may be True or 1.0


class Log:
    """The owner's handle. Thread-safe."""

    def __init__(self, parts: LogParts, opener: tuple[int, Path] | None = None) -> None:
        """`opener`: under which key this handle counts as an opener; None where it does not count."""
        self.directory, self.name = parts.directory, parts.directory.name
        self.uuid, self.epoch = parts.catalog.list.uuid, parts.catalog.list.epoch
        self.metadata, self.files, self.clock = parts.metadata, parts.files, parts.clock
        self.attached = parts.attached
        self._opener = opener
        self._closed = False
        self._error_at_close: BaseException | None = None
        self._lock = threading.Lock()  # for `_closed`
        self._parts = parts
        self._appender = parts.appender
        self._retention = parts.retention
        self._submit = parts.appender.submit  # the queue's own method: no call in between for each append
        closed_in_children(self)

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

        Where this process owns the log already, this is one more handle on it; the log is closed with the last of
        them. Raises `Unavailable` while another process owns the log, `Corruption` where durable bytes are damaged, and
        `BadInput` where the log is open here with other settings, another clock or another metadata store than those given
        (a second `SqliteMetadata` on the same path is the same store). What is left at its default says nothing.
        """
        directory = checked_path("the directory of a log", directory)
        check_type("settings", settings, LogSettings, optional=True)
        check_components(files, metadata)
        check_component("clock", clock, "wall_ms")
        key = (id(files), directory.absolute())

        def make() -> LogParts:
            return cls._open(directory, settings or LogSettings(), files, clock, metadata)

        def check(parts: LogParts) -> None:
            _refuse_others(parts, settings)
            _refuse_other_components(parts, clock, metadata)

        return cls(_OPEN_LOGS.open(key, _usable, make, check), key)

    @classmethod
    def _open(
        cls, directory: Path, settings: LogSettings, files: Files, clock: Clock, metadata: MetadataStore | None
    ) -> LogParts:
        with typed_errors(f"log {directory}"), contextlib.ExitStack() as on_error:
            files.make_directory(directory)
            resources = contextlib.ExitStack()
            on_error.callback(resources.close)
            resources.enter_context(files.lock(directory / "lock"))
            if metadata is None:
                metadata = SqliteMetadata(default_metadata_path(directory))
                resources.callback(metadata.close)
            metadata.settle()
            found = metadata.get(log_key(directory))
            if found is not None and LedgerList.decode(found.value).deleted:
                remove_log(directory, files, metadata)  # finishes a deletion that a crash interrupted
            parts = LogParts(
                directory, settings=settings, files=files, clock=clock, metadata=metadata, resources=resources
            )
            on_error.pop_all()  # from here on close() releases the resources
            watch_log(parts)
            return parts

    def for_attached(self) -> Log:
        """A handle for a part that stands on this log: it is no opener, and lives as long as the log does."""
        self._check_open()
        return Log(self._parts)

    def __enter__(self) -> Log:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def state(self) -> LogState:
        """What may be done with the log now, as far as this handle knows; reads nothing. A closed handle answers too.

        | state | |
        |---|---|
        | `OPEN` | appends are taken |
        | `TERMINATED` | nothing is appended any more, ever; everything else works |
        | `STOPPED` | the disk or the metadata store failed: nothing is accepted; the next open finds out what is there |
        | `FENCED` | another process owns the log now |
        | `CLOSED` | this handle was closed |
        """
        return LogState.CLOSED if self._closed else self._parts.state()

    @property
    def error(self) -> BaseException | None:
        """Why the log takes no more appends; None while it does, and once this handle was closed in order."""
        return self._error_at_close if self._closed else self._parts.error()

    def end(self) -> Position:
        """The last durable entry; `(ledger, -1)` where there is none."""
        return self._appender.last

    # -- appends -------------------------------------------------------------------------------------------------

    def append(
        self,
        data: Buffer | Sequence[Buffer],
        changes: Changes = _NO_CHANGES,
        *,
        wait: bool = True,
        after: Pending[Any] | None = None,
        encoded: bool = False,
        messages: int = 1,
    ) -> Pending[Position]:
        """Appends one entry; the result is its position, once entry and changes are durable.

        The buffers must not change until then. Waits while `waiting_bytes_max` wait, except in a callback of an append and
        unless `wait` is off: then call `wait_for_room` before taking a lock that callbacks want. Raises what stopped the log before. Where only the
        open ledger fails, the entry goes into a new one. Where the append `after`, on which this one depends, failed,
        this one fails too, even if the log goes on. `encoded` says that the changes are bytes that `encode_changes`
        made: they are not looked at again. `messages`: how many the entry stands for, for statistics. Raises `BadInput` for
        anything that cannot be appended.
        """
        if type(data) is bytes and changes is _NO_CHANGES:
            size = len(data)
            if size > BODY_BYTES_MAX:
                raise BadInput(f"an entry of {size} bytes is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
        else:
            data, changes, size = checked_append(data, changes, encoded=encoded)
        item = AppendRequest(data, changes, size, 0 if messages is _ONE_MESSAGE else -checked_messages(messages))
        if after is not None:
            if not isinstance(after, Pending):
                raise BadInput(f"an append cannot come after a {type(after).__name__}", hint="the answer of an append")
            item.after = after
        self._submit(item, wait=wait)
        return item

    def append_many(self, entries: Sequence[Buffer], *, wait: bool = True) -> Pending[Span]:
        """Appends entries one after the other into one ledger; the result says where the first and the last are.

        The fast way for many small entries. A crash before the result may leave some of them, from the first on.
        """
        entries = checked_sequence(entries, "a batch of entries")
        if not entries:
            raise BadInput("an empty batch cannot be appended", hint="append at least one entry")
        size = checked_size(entries)
        if size > BODY_BYTES_MAX and max(map(len, entries)) > BODY_BYTES_MAX:
            raise BadInput("an entry of the batch is too large", hint=f"at most {BODY_BYTES_MAX} bytes")
        item = AppendRequest(entries, (), size, len(entries))
        self._submit(item, wait=wait)
        return cast("Pending[Span]", item)

    def has_room(self) -> bool:
        """Whether less than `waiting_bytes_max` waits: an append would not wait now."""
        return self._appender.waiting_bytes < self._parts.settings.waiting_bytes_max

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
        return self._parts.reader()

    def is_calling_back(self) -> bool:
        """Whether this is the log's own thread, in a callback of an append: it must not wait for the log."""
        return self._appender.runs_here()

    def check_owner(self) -> None:
        """Raises `Fenced` where another owner came. Cheap: one small read."""
        self._parts.check_owner()

    def statistics(self) -> LogStatistics:
        return self._parts.statistics()

    # -- cursors -------------------------------------------------------------------------------------------------

    def open_cursor(self, name: str, start: Start = "earliest", *, durable: bool = True) -> Cursor:
        """The cursor of that name, made at `start` where it is new; closed with the log. Idempotent.

        `start`: "earliest", "latest" or a position, after which everything is unread. With `durable` off, each call
        makes a new cursor, which is forgotten when it is closed. Raises `Unavailable` while another process owns the
        cursor.
        """
        self.check_owner()
        return self._parts.cursors().open(name, start, durable=durable)

    def cursors(self) -> list[CursorInfo]:
        """Every durable cursor, whoever owns it; by name."""
        return self._parts.cursors().infos()

    def opened_cursors(self) -> list[Cursor]:
        """The cursors that are open in this process, for statistics."""
        return self._parts.cursors().opened()

    def delete_cursor(self, name: str) -> None:
        """Removes the cursor. Raises `BadInput` where there is none, `Unavailable` while another process owns it."""
        self.check_owner()
        self._parts.cursors().delete(name)

    def expire_cursors(self, inactive_seconds: float) -> list[str]:
        """Deletes the cursors that nobody has open and that neither read nor acked for so long; their names."""
        check_amount("inactive_seconds", inactive_seconds)
        self.check_owner()
        return self._parts.cursors().expire(inactive_seconds)

    # -- what is kept --------------------------------------------------------------------------------------------

    def roll(self) -> bool:
        """Seals the open ledger and starts the next; False where it is empty, or the metadata store does not answer."""
        return self._retention.roll()

    def trim(self) -> list[int]:
        """Removes the ledgers that every cursor and pin has passed and that retention does not keep; their numbers."""
        self.check_owner()
        return self._retention.trim()

    def trim_soon(self) -> None:
        """A cursor or pin moved: the maintenance begins at once, and trims what may go now."""
        self._retention.maintain_soon()

    def maintain(self) -> None:
        """What the maintenance thread does at its intervals: rolls an open ledger that is old, deletes cursors that
        nobody uses, trims, tries failed deletes again, offloads."""
        self._retention.maintain()

    def offload(
        self, url: str | None = None, *, keep_bytes: int = 0, progress: Callable[[OffloadProgress], None] | None = None
    ) -> list[int]:
        """Copies sealed ledgers beyond the newest `keep_bytes` to the object store; their numbers.

        Also removes local files whose `offload_deletion_lag_seconds` are over. `url`: that of the settings where it is
        not given. Raises `OffloadInProgress` while another offload runs, `Unavailable` where the store does not answer,
        and `Corruption` where a local file is damaged; what was copied before stays copied.
        """
        check_type("url", url, str, optional=True)
        check_count("keep_bytes", keep_bytes)
        check_callable("progress", progress, optional=True)
        self.check_owner()
        return self._retention.offload(url, keep_bytes, progress)

    def clear(self) -> None:
        """Removes every entry, whatever cursors need; they go on with what comes after. Raises `BadInput` if pinned."""
        self.check_owner()
        self._retention.clear()

    def check_truncate(self, position: Position, *, own: Collection[str] = (), force: bool = False) -> None:
        """Raises what `truncate` would raise, as far as that can be said now."""
        check_position("position", position)
        check_names("own", own)
        self.check_owner()
        self._retention.check_truncate(position, own=own, force=force)

    def truncate(self, position: Position, *, own: Collection[str] = (), force: bool = False) -> list[int]:
        """Removes every entry after `position`, for good; the ledgers that went as a whole.

        Raises `BadInput` where a cursor or pin stands beyond it, unless `force` is set: then cursors are moved to the
        new end first; one that another process has open cannot be moved, and the answer is `Unavailable`: nothing was
        removed then. `own`: pins that the caller moves itself. State on this log is taken back by its own `truncate`.
        """
        check_position("position", position)
        check_names("own", own)
        self.check_owner()
        if (kind := self.attached.other_than(own)) is not None:
            raise BadInput(
                f"the {kind} of log {self.name} is open", hint=f"truncate the {kind}: it takes the log with it"
            )
        return self._retention.truncate(position, own=own, force=force)

    def skip(self, ledger_id: int, *, dry_run: bool = False) -> Skipping:
        """Gives up the entries of the ledger that no copy of it gives back; says what is lost, and which cursors lack it.

        From here on readers and cursors pass over them, and say so (`statistics().skipped_entries`, metrics, the program's
        log). An entry that can be read is never skipped. State that was made of them cannot be recovered from this log. With
        `dry_run` nothing is changed. Raises `BadInput` where everything can be read. For a log that cannot be opened:
        `skip_closed`.
        """
        check_count("ledger_id", ledger_id)
        self.check_owner()
        return self._retention.skip(ledger_id, dry_run=dry_run)

    def pin(self, name: str, position: Position) -> None:
        """Keeps entries at and after `position` until `unpin`; durable. Raises `BadInput` where they are gone."""
        check_name("a pin", name)
        check_position("position", position)
        self.check_owner()
        self._retention.pin(name, position)

    def unpin(self, name: str) -> None:
        """Fine if there is no such pin."""
        check_name("a pin", name)
        self._retention.unpin(name)

    def pins(self) -> dict[str, Position]:
        return self._retention.pins()

    # -- properties, terminate, close, delete --------------------------------------------------------------------

    def properties(self) -> dict[str, str]:
        return dict(self._parts.catalog.list.properties)

    def set_properties(self, properties: Mapping[str, str | None]) -> dict[str, str]:
        """Changes these properties and keeps the others; None removes one. Durable when it returns; all properties."""
        check_texts("properties", properties, optional=True)
        properties = dict(properties)

        def update(listed: LedgerList) -> LedgerList:
            merged = {**dict(listed.properties), **properties}
            kept = tuple(sorted((key, value) for key, value in merged.items() if value is not None))
            return dataclasses.replace(listed, properties=kept)

        return dict(self._parts.catalog.change(update).properties)

    def terminate(self) -> Position:
        """Nothing is appended any more, ever; the last entry. Readers that wait at the end get `Terminated`."""
        return self._appender.call_on_writer_thread(self._appender.terminate)

    def terminated(self) -> bool:
        return self._parts.catalog.list.terminated

    def close(self) -> None:
        """Gives up this handle; every later call on it raises `Closed`. Closing it again does nothing.

        The last handle finishes what waits, seals the ledger and gives up ownership; readers, cursors and state of the
        log are closed with it. Raises what goes wrong meanwhile. In a callback of an append it returns at once: the log
        closes behind it, and what goes wrong is in the program's log. (Where the system gives no thread for that, it raises
        `Unavailable`, and this handle stays open.)
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        parts = self._parts
        self._error_at_close = parts.error()
        try:
            if self._opener is not None and _OPEN_LOGS.leave(self._opener, parts):
                forget_log(parts)
                already_failed = parts.appender.error
                try:
                    parts.close()
                except Unavailable:
                    if not parts.closed:
                        _OPEN_LOGS.return_to(self._opener, parts)
                        watch_log(parts)
                        self._closed = False
                    raise
                error = parts.appender.error
                if error is not None and error is not already_failed:
                    self._error_at_close = error
                    raise fresh(error)
        finally:
            if self._closed:
                self._refuse_all(f"log {self.directory}")

    def forked(self) -> None:
        """In a forked child, which has neither the writer thread nor the log: nothing is closed, nothing can be done."""
        self._closed = True
        self._refuse_all(f"log {self.directory}", FORK_HINT)

    def _check_open(self) -> None:
        if self._closed:
            self._parts.check_owner()  # what stands in the place of the parts says why

    def _refuse_all(self, what: str, hint: str = "") -> None:
        closed: Any = ClosedPart(what, hint)
        self._parts = self._appender = self._retention = self.attached = closed
        self._submit = closed.refuse

    @staticmethod
    def delete(
        directory: Path, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK, metadata: MetadataStore | None = None
    ) -> None:
        """Removes a log that nobody has open, with cursors and metadata. After a crash the next open completes it."""
        check_components(files, metadata)
        check_component("clock", clock, "wall_ms")
        delete_log(checked_path("the directory of a log", directory), files, clock, metadata)


def _usable(parts: LogParts) -> bool:
    return parts.state() in {LogState.OPEN, LogState.TERMINATED}


def _refuse_others(parts: LogParts, settings: LogSettings | None) -> None:
    """Raises `BadInput` where the log is open with other settings: they would be ignored in silence."""
    if settings is None or settings == parts.settings:
        return
    names = [field.name for field in dataclasses.fields(LogSettings)]
    other = [name for name in names if getattr(settings, name) != getattr(parts.settings, name)]
    told = ", ".join(f"{name} is {getattr(parts.settings, name)!r}, not {getattr(settings, name)!r}" for name in other)
    raise BadInput(
        f"log {parts.directory} is open in this process with other settings: {told}", hint="give the same ones, or none"
    )


def _refuse_other_components(parts: LogParts, clock: Clock, metadata: MetadataStore | None) -> None:
    """Raises `BadInput` where the log is open with another clock or metadata store, which would be ignored in silence."""
    if clock is not SYSTEM_CLOCK and clock is not parts.clock:
        raise BadInput(
            f"log {parts.directory} is open in this process with another clock", hint="give the same, or none"
        )
    ours = parts.metadata
    if metadata is None or metadata is ours:
        return
    stores = [store.path.resolve() for store in (metadata, ours) if isinstance(store, SqliteMetadata)]
    if len(stores) == 2 and stores[0] == stores[1]:
        return
    raise BadInput(
        f"log {parts.directory} is open in this process with another metadata store", hint="give the same one, or none"
    )


_OPEN_LOGS: OpenLogs[LogParts] = OpenLogs()
os.register_at_fork(after_in_child=_OPEN_LOGS.forked)


__all__ = ["Log", "LogSettings", "LogState", "LogStatistics"]
