"""Brings what the readers of a load have read into the log: for the thread of the capture loop, between transactions.

A chunk is appended once the stream has passed its *high*: by then everything that it may show is in the log before it. If
the table has another version than the chunk was read by, or parts of a transaction became void since its *low*, the
chunk is thrown away and read again. What the stream has changed since low is taken out (cleaning.py). How far each range of
a table is rides in the chunk's own frame: after a crash both are there or neither is.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.capture.load.cleaning import without_changed
from penstock.capture.load.keeping import ChunkPin
from penstock.capture.load.tables import LoadingTable, ReadChunk, TableReaders, Ticket
from penstock.capture.recorder import Recorder
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.frame_content import FrameContent
from penstock.clock import Clock
from penstock.commit_ts import CommitClock
from penstock.entries.chunk import encode_chunk
from penstock.log import Log, Trimmed
from penstock.schema.model import TableSchema
from penstock.schema.quoting import shell_word
from penstock.sources.load import Name, TableLoad, TableReader, has_passed
from penstock.sources.position import SourcePosition
from penstock.sources.settings import LoadScope, SnapshotSettings
from penstock.sources.source import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

TICKET_SECONDS_MIN = 0.1  # between two tickets: each ends the entry that is being filled
HELD_SECONDS = 10.0  # until a table that could not be read is tried again
SHOWN_MAX = 10  # of the tables that are being loaded, in a report
_KEYLESS = "it lost its primary key while it was loaded"
_HINT = "ALTER TABLE … ADD PRIMARY KEY, or leave it out of the load (source.snapshot.tables.exclude)"
_UNKNOWN_YET = "waits: the stream has to come to where the table's definition was read"

_logger = logging.getLogger(__name__)


class InitialLoad:
    """The load of one log. Nothing happens, and no thread is there, where all tables are done."""

    def __init__(
        self,
        log: Log,
        recorder: Recorder,
        *,
        schemas: SchemaTracker,
        commit_clock: CommitClock,
        clock: Clock,
        settings: SnapshotSettings,
        open_reader: Callable[[], TableReader],
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._schemas = schemas
        self._commit_clock = commit_clock
        self._clock = clock
        self._settings = settings
        self._open_reader = open_reader
        self._wake = wake
        loads: dict[Name, TableLoad] = {(str(name[0]), str(name[1])): load for name, load in recorder.loads.items()}
        left = {name: load for name, load in loads.items() if not load.done and schemas.is_chosen(*name)}
        since = min((load.begun_ms for load in left.values()), default=0)
        # Of those that were asked for before, nobody wants to know how far they are.
        self._finished = {name: load for name, load in loads.items() if load.done and load.begun_ms >= since}
        self._begun = clock.monotonic()
        self._rows = 0  # by this process, since
        self._ticket_due = clock.monotonic()
        self._changes = recorder.load_changes
        self._readers: TableReaders | None = None
        self._pin = ChunkPin(log, clock)
        self._add({name: load for name, load in left.items() if load.key})
        self._waiting = {name: load for name, load in left.items() if not load.key}

    @property
    def done(self) -> bool:
        if self._schemas.has_arrivals or self._changes != self._recorder.load_changes:
            return False
        return self._readers is None and not self._waiting

    @property
    def ended(self) -> bool:
        """Whether nothing more will be loaded by itself: all is, or what is left waits for whoever resumes a parked table.
        Raises `SourceError` where a table cannot be read: a run that ended there would say that all is well."""
        if self.done:
            return True
        if self._readers is None or self._waiting:
            return False
        with self._readers.changed:
            left = [table for table in self._readers.tables if not table.done]
            if not left or not all(self._is_held(table) or self._is_parked(table) for table in left):
                return False
            held = next((table for table in left if self._is_held(table)), None)
        if held is not None:
            raise SourceError(f"{'.'.join(held.name)} cannot be loaded: {held.held}")
        return True

    @property
    def waiting(self) -> Mapping[Name, TableLoad]:
        """The tables that are to be loaded once the log knows them: beginning.py waits for that."""
        return self._waiting

    def is_loading(self, schema: str, table: str) -> bool:
        found = self._recorder.loads.get((schema, table))
        return found is not None and not found.done and self._schemas.is_chosen(schema, table)

    def begin(
        self,
        loads: Mapping[Name, TableLoad],
        *,
        versions: tuple[TableSchema, ...] = (),
        scope: LoadScope | None = None,
    ) -> None:
        """Loads these tables, too; returns once that is durable. Those without a key wait; a load that is done already was
        given up. `versions`: what the log knows of them from here on. Only between transactions."""
        stamped = tuple(replace(version, version=self._commit_clock.next()) for version in versions)
        here = self._recorder.snapshot
        at = replace(here, commit_ts=max(here.commit_ts, self._commit_clock.last))
        self._recorder.append(FrameContent([], at, schemas=stamped, loads=loads, scope=scope))
        self._recorder.finish()
        if self.done and loads:
            self._finished, self._begun, self._rows = {}, self._clock.monotonic(), 0
        for name, load in loads.items():
            self._waiting.pop(name, None)
            self._finished.pop(name, None)
            if load.done:
                self._finished[name] = load
                self._end(name, load)
            elif not load.key:
                self._waiting[name] = load
        self._add({name: load for name, load in loads.items() if load.key and not load.done})

    def _end(self, name: Name, load: TableLoad) -> None:
        """What is being read of the table, if it is, is not wanted any more."""
        if self._readers is not None:
            with self._readers.changed:
                for table in self._readers.tables:
                    if table.name == name:
                        table.begin_again(load)
                self._readers.changed.notify_all()

    def _add(self, loads: Mapping[Name, TableLoad]) -> None:
        if loads and self._readers is None:
            self._readers = TableReaders(
                loads,
                self._open_reader,
                parallel=self._settings.parallel,
                rows_per_second=self._settings.max_rows_per_second,
                clock=self._clock,
                wake=self._wake,
            )
        elif loads and self._readers is not None:
            self._readers.add(loads)

    def close(self) -> None:
        if self._readers is not None:
            self._readers.close()
        self._pin.release()

    def make_room(self) -> None:
        """The log is full: what a chunk that is being read still needs of it may go."""
        self._pin.release()

    def is_due(self, passed: SourcePosition) -> bool:
        """Whether `step` has something to do, where the stream is now."""
        readers = self._readers
        if self._schemas.has_arrivals or self._changes != self._recorder.load_changes:
            return True
        if readers is None:
            return False
        with readers.changed:
            return (
                readers.error is not None
                or self._pin.is_due()
                or self._ticket_is_due(readers)
                or any(
                    part.ready
                    and (has_passed(passed, part.ready[0].high) or part.ready[0].high.source != passed.source)
                    for table in readers.tables
                    for part in table.ranges
                )
            )

    def step(self, passed: SourcePosition) -> None:
        """Appends the chunks whose moment has come, and lets the readers go on. Only between transactions, when everything
        before `passed` is appended."""
        self._follow_changes()
        readers = self._readers
        if readers is None:
            return
        if readers.error is not None:
            raise readers.error
        for table in readers.tables:
            while not table.done and (found := self._next_chunk(table, passed)) is not None:
                self._take(table, *found, passed)
        if self._pin.is_due():
            with readers.changed:
                oldest = readers.oldest()
            self._pin.look(oldest)
        if passed.file:
            self._give_ticket(readers, passed)
        with readers.changed:
            if any(table.done for table in readers.tables):
                readers.tables = [table for table in readers.tables if not table.done]
            done = not readers.tables
        if done:
            self._recorder.finish()
            readers.close()
            self._readers = None
            self._pin.release()

    def _follow_changes(self) -> None:
        """A load goes with its table, and may begin anew by itself; the log has it already."""
        if self._schemas.has_arrivals:
            self.begin({})  # any frame takes them along
        if self._changes == self._recorder.load_changes:
            return
        self._changes = self._recorder.load_changes
        readers = self._readers
        with readers.changed if readers is not None else contextlib.nullcontext():
            added = self._changed_loads({table.name: table for table in readers.tables} if readers is not None else {})
        self._add(added)

    def _changed_loads(self, known: Mapping[Name, LoadingTable]) -> dict[Name, TableLoad]:
        """Under the lock, if there are readers. Returns the loads of tables that are not being read."""
        added: dict[Name, TableLoad] = {}
        for key, load in self._recorder.loads.items():
            name = (str(key[0]), str(key[1]))
            table = known.get(name)
            if not load.done and not load.key and self._schemas.is_chosen(*name):
                if table is not None:  # another table has its name now: of this one nothing more is read
                    table.begin_again(replace(table.load, done=True))
                self._waiting[name] = load
            elif table is not None and table.load != load:
                table.load = load
                self._begin_again(table)  # also one whose ranges no chunk has brought into the log yet
            elif table is None and not load.done and load.key and self._schemas.is_chosen(*name):
                added[name] = load
            if not load.done:
                self._finished.pop(name, None)
            elif table is not None or name in self._finished:
                self._finished[name] = load
        return added

    def _next_chunk(self, table: LoadingTable, passed: SourcePosition) -> tuple[int, ReadChunk] | None:
        """A chunk that the stream has passed, and the number of its range."""
        assert self._readers is not None
        with self._readers.changed:
            for part in table.ranges:
                if not part.ready:
                    continue
                high = part.ready[0].high
                if high.source != passed.source:  # another server: its files say nothing of these positions
                    self._begin_again(table)
                    return None
                if has_passed(passed, high):
                    return part.number, part.ready.popleft()
        return None

    def _ticket_is_due(self, readers: TableReaders) -> bool:
        """A reader wants one; or a table waits for a version that can be read: the next ticket looks for it."""
        now = self._clock.monotonic()
        return now >= self._ticket_due and (
            readers.ticket_wanted
            or any(
                not table.done and table.schema is None and (now >= table.held_until or not self._is_held(table))
                for table in readers.tables
            )
        )

    def _give_ticket(self, readers: TableReaders, passed: SourcePosition) -> None:
        """From here on a chunk need show no less than what is in the log now."""
        if not self._ticket_is_due(readers):
            return
        self._ticket_due = self._clock.monotonic() + TICKET_SECONDS_MIN
        # What is appended and not durable yet is after the log's end: it is looked at when a chunk is cleaned, though the
        # chunk shows it. That takes out no row of which the log lacks the newest image, and nobody waits for the disk.
        ticket = Ticket(self._log.end(), passed, self._recorder.entries, self._recorder.voids)
        keyless: list[LoadingTable] = []
        with readers.changed:
            readers.ticket = ticket
            readers.ticket_wanted = False
            for table in readers.tables:
                if not table.done and not self._use_version(table):
                    keyless.append(table)
            gone = [table for table in readers.tables if not table.done and table.schema is None]
            readers.changed.notify_all()
        for table in keyless:
            self._give_up(table, _KEYLESS, _HINT, passed)
        for table in gone:
            if table not in keyless:
                self._check_gone(table, passed)

    def _use_version(self, table: LoadingTable) -> bool:
        """Under the lock: the table is read by the version in force, if that has rows that can be read. False where that has
        no primary key."""
        if self._clock.monotonic() < table.held_until and self._is_held(table):
            return True
        found = self._schemas.in_force(*table.name)
        table.schema = found if found is not None and found.columns else None
        if table.schema is None:
            return True
        load = _for_key(table.load, table.schema)
        if load is None:
            table.schema = None
        elif load is not table.load:
            table.begin_again(load)
        return load is not None

    def _take(self, table: LoadingTable, number: int, chunk: ReadChunk, passed: SourcePosition) -> None:
        """A chunk that the stream has passed: into the log, or read again."""
        assert self._readers is not None
        found = self._schemas.in_force(*table.name)
        ticket = chunk.ticket
        if chunk.rows is None and found is not None and found.key == chunk.table.key:
            # Only where no statement lies between the log and the SELECT: values of another type are no failure.
            self._give_up(table, chunk.failure or "the server's table is not as the log has it", chunk.hint, passed)
            return
        if found is None or found.key != chunk.table.key or ticket.voids != self._recorder.voids or chunk.rows is None:
            _logger.info("%s changed while a chunk was read: it is read again", chunk.table.name)
            with self._readers.changed:
                self._begin_again(table)
            return
        if table.load.order not in ((), chunk.rows.order):
            _logger.info("the key of %s has another order now: it is loaded from its first row on", found.name)
            with self._readers.changed:
                table.load = table.load.anew()
                self._begin_again(table)
            return
        columns = chunk.rows.columns
        if ticket.entries != self._recorder.entries and chunk.rows.count:
            try:
                columns = self._cleaned(columns, found, table.load, ticket)
            except Trimmed:
                _logger.info("the log does not have all any more that came since a chunk of %s was read", found.name)
                with self._readers.changed:
                    self._begin_again(table)
                return
        count = len(columns[0])
        load = table.load.with_chunk(number, chunk.rows, count)
        self._append(table, load, passed, version=found if count else None, columns=columns)
        self._rows += count

    def _cleaned(
        self, columns: list[pa.Array[Any]], version: TableSchema, load: TableLoad, ticket: Ticket
    ) -> list[pa.Array[Any]]:
        self._recorder.finish()
        window = (entry for entry in self._log.read(ticket.log, self._log.end()) if entry.position > ticket.log)
        columns, left_out = without_changed(columns, version, load.key, window)
        if left_out:
            _logger.debug("%s: %d rows of a chunk changed meanwhile", version.name, left_out)
        return columns

    def _give_up(self, table: LoadingTable, why: str, hint: str, passed: SourcePosition) -> None:
        """A table that cannot be read stops nothing else. A backfill is over, and says so. Any other load waits, and says why:
        rows that are left out would be missed by nobody."""
        if not table.load.backfill:
            self._hold(table, f"{why} ({hint})" if hint else why)
            return
        _logger.warning("%s: the backfill ends: %s", ".".join(table.name), why)
        self._append(table, replace(table.load, done=True, note=why), passed)

    def _hold(self, table: LoadingTable, why: str) -> None:
        assert self._readers is not None
        with self._readers.changed:
            if table.held != why:
                _logger.warning("%s cannot be loaded, and waits: %s", ".".join(table.name), why)
            found = self._schemas.in_force(*table.name)
            table.held, table.held_version = why, found.version if found is not None else 0
            table.held_until = self._clock.monotonic() + HELD_SECONDS
            self._begin_again(table)

    def _append(
        self,
        table: LoadingTable,
        load: TableLoad,
        passed: SourcePosition,
        *,
        version: TableSchema | None = None,
        columns: list[Any] | None = None,
    ) -> None:
        """A frame with the progress, and with the rows where there are any."""
        assert self._readers is not None
        data = []
        if version is not None:
            data = encode_chunk(version, columns or [], self._commit_clock.next(), passed)
        position = replace(passed, commit_ts=max(passed.commit_ts, self._commit_clock.last))
        self._recorder.append(FrameContent(data, position, loads={table.name: load}))
        with self._readers.changed:
            table.load = load
            table.held = ""
            if load.done:
                self._finished[table.name] = load
            self._readers.changed.notify_all()

    def _check_gone(self, table: LoadingTable, passed: SourcePosition) -> None:
        """A table that was dropped has no rows any more. A parked one waits for whoever resumes it."""
        if self._schemas.in_force(*table.name) is not None:
            return  # parked
        name = ".".join(table.name)
        _logger.info("%s is gone: what was not loaded of it is not loaded", name)
        self._append(table, replace(table.load, done=True, note="it is gone"), passed)

    def _begin_again(self, table: LoadingTable) -> None:
        """Under the lock: what was read ahead is thrown away."""
        assert self._readers is not None
        table.begin_again(table.load)
        table.schema = None  # until the next ticket
        self._readers.ticket_wanted = True
        self._readers.changed.notify_all()

    def facts(self) -> dict[str, Any] | None:
        """For status; None where nothing was ever loaded."""
        tables = self._readers.tables if self._readers is not None else []
        loading = [table for table in tables if not table.done]
        if not (loading or self._waiting or self._finished):
            return None
        rows = sum(load.rows for load in self._finished.values()) + sum(table.load.rows for table in loading)
        left = sum(max(0, table.load.estimate - table.load.rows) for table in loading)
        seconds = self._clock.monotonic() - self._begun
        rate = self._rows / seconds if seconds > 0 else 0.0
        left += sum(load.estimate for load in self._waiting.values())
        found = [*self._finished.values(), *self._waiting.values(), *(table.load for table in loading)]
        standing = [(table, self._standing(table)) for table in loading]
        shown = [_shown(table.name, table.load, note) for table, note in standing if note or table.reading]
        shown += [_shown(name, load, _UNKNOWN_YET) for name, load in self._waiting.items()]
        ended = [_shown(name, load, load.note) for name, load in self._finished.items() if load.note]
        return {
            "tables": len(found),
            "done": len(self._finished),
            "rows": rows,
            "rows_left": left,
            "seconds_left": round(left / rate, 1) if rate and loading else None,
            "begun_ms": max(load.begun_ms for load in found),
            "loading": shown[:SHOWN_MAX],
            "ended": ended[:SHOWN_MAX],
        }

    def _standing(self, table: LoadingTable) -> str:
        """Why nothing is read of a table now; empty where something is."""
        if self._is_parked(table):
            return f"waits: the table is parked (penstock resume {shell_word('.'.join(table.name))})"
        return f"waits: {table.held}" if self._is_held(table) else ""

    def _is_held(self, table: LoadingTable) -> bool:
        """Whether it could not be read, and is still what it was then."""
        found = self._schemas.in_force(*table.name)
        return bool(table.held) and found is not None and found.version == table.held_version

    def _is_parked(self, table: LoadingTable) -> bool:
        found = self._schemas.in_force(*table.name)
        return found is not None and found.parked


def _shown(name: Name, load: TableLoad, note: str) -> dict[str, Any]:
    found = {"table": ".".join(name), "rows": load.rows, "estimate": load.estimate}
    return found | ({"where": load.where} if load.where else {}) | ({"note": note} if note else {})


def _for_key(load: TableLoad, table: TableSchema) -> TableLoad | None:
    """The load, from its beginning where the table's primary key is another one now; None where it has none."""
    key = tuple(table.columns[i].name for i in table.primary_key)
    if {name.lower() for name in key} == {name.lower() for name in load.key}:
        return load
    return replace(load.anew(), key=key) if key else None
