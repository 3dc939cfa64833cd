"""Brings what the readers of a load have read into the log: for the thread of the capture loop, between transactions.

A chunk is appended once the stream has passed its *high*: by then everything that it may show is in the log before it. If
the table has another version than the chunk was read by, or parts of a transaction became void since its *low*, the
chunk is thrown away and read again. What the stream has changed since low is taken out (cleaning.py). How far a table is
rides in the chunk's own frame: after a crash both are there or neither is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from penstock.capture.load.cleaning import without_changed
from penstock.capture.load.tables import LoadingTable, ReadChunk, TableReaders, Ticket
from penstock.capture.recorder import Recorder
from penstock.capture.schemas import SchemaTracker
from penstock.capture.transactions.frame_content import FrameContent
from penstock.clock import Clock
from penstock.commit_ts import CommitClock
from penstock.entries.chunk import encode_chunk
from penstock.log import Log
from penstock.schema.model import TableSchema
from penstock.sources.load import TableLoad, TableReader, has_passed
from penstock.sources.position import SourcePosition
from penstock.sources.settings import SnapshotSettings
from penstock.sources.source import SourceError

TICKET_SECONDS_MIN = 0.1  # between two tickets: each ends the entry that is being filled
SHOWN_MAX = 10  # of the tables that are being loaded, in a report

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
    ) -> None:
        self._log = log
        self._recorder = recorder
        self._schemas = schemas
        self._commit_clock = commit_clock
        self._clock = clock
        loads: dict[tuple[str, str], TableLoad] = {
            (str(name[0]), str(name[1])): load for name, load in recorder.loads.items()
        }
        self._count = len(loads)
        self._finished = {name: load for name, load in loads.items() if load.done}
        self._begun = clock.monotonic()
        self._rows = 0  # by this process
        self._ticket_due = clock.monotonic()
        left = {name: load for name, load in loads.items() if not load.done and schemas.follows(*name)}
        self._readers: TableReaders | None = None
        if left:
            self._readers = TableReaders(
                left,
                open_reader,
                parallel=settings.parallel,
                rows_per_second=settings.max_rows_per_second,
                clock=clock,
            )

    @property
    def done(self) -> bool:
        return self._readers is None

    def close(self) -> None:
        if self._readers is not None:
            self._readers.close()

    def is_due(self, passed: SourcePosition) -> bool:
        """Whether `step` has something to do, where the stream is now."""
        readers = self._readers
        if readers is None:
            return False
        with readers.changed:
            return (
                readers.error is not None
                or self._ticket_is_due(readers)
                or any(
                    table.ready
                    and (has_passed(passed, table.ready[0].high) or table.ready[0].high.source != passed.source)
                    for table in readers.tables
                )
            )

    def step(self, passed: SourcePosition) -> None:
        """Appends the chunks whose moment has come, and lets the readers go on. Only between transactions, when everything
        before `passed` is appended."""
        readers = self._readers
        if readers is None:
            return
        if readers.error is not None:
            raise readers.error
        for table in readers.tables:
            while (chunk := self._next_chunk(table, passed)) is not None:
                self._take(table, chunk, passed)
        if passed.file:
            self._give_ticket(readers, passed)
        if all(table.done for table in readers.tables):
            self._recorder.finish()
            readers.close()
            self._readers = None

    def _next_chunk(self, table: LoadingTable, passed: SourcePosition) -> ReadChunk | None:
        assert self._readers is not None
        with self._readers.changed:
            if not table.ready:
                return None
            high = table.ready[0].high
            if high.source != passed.source:  # another server: its files say nothing of these positions
                self._begin_again(table)
                return None
            return table.ready.popleft() if has_passed(passed, high) else None

    def _ticket_is_due(self, readers: TableReaders) -> bool:
        """A reader wants one; or a table waits for a version that can be read: the next ticket looks for it."""
        wanted = readers.ticket_wanted or any(not table.done and table.schema is None for table in readers.tables)
        return wanted and self._clock.monotonic() >= self._ticket_due

    def _give_ticket(self, readers: TableReaders, passed: SourcePosition) -> None:
        """From here on a chunk need show no less than what is in the log now, all of which is durable."""
        if not self._ticket_is_due(readers):
            return
        self._ticket_due = self._clock.monotonic() + TICKET_SECONDS_MIN
        self._recorder.finish()
        ticket = Ticket(self._log.end(), passed, self._recorder.entries, self._recorder.voids)
        with readers.changed:
            readers.ticket = ticket
            readers.ticket_wanted = False
            for table in readers.tables:
                if not table.done:
                    self._use_version(table)
            gone = [table for table in readers.tables if not table.done and table.schema is None]
            readers.changed.notify_all()
        for table in gone:
            self._check_gone(table, passed)

    def _use_version(self, table: LoadingTable) -> None:
        """Under the lock: the table is read by the version in force, if that has rows that can be read."""
        found = self._schemas.in_force(*table.name)
        table.schema = found if found is not None and found.columns else None
        if table.schema is not None:
            load = _for_key(table.load, table.schema)
            if load is not table.load:
                table.load = load
                table.generation += 1
                table.ready.clear()

    def _take(self, table: LoadingTable, chunk: ReadChunk, passed: SourcePosition) -> None:
        """A chunk that the stream has passed: into the log, or read again."""
        assert self._readers is not None
        found = self._schemas.in_force(*table.name)
        ticket = chunk.ticket
        if chunk.rows is None and found is not None and found.key == chunk.table.key:
            raise SourceError(
                f"{chunk.table.name} cannot be loaded: the server's table is not as the log has it",
                hint="start again with a new state_dir, or leave it out of the load (source.snapshot.tables.exclude)",
            )
        if found is None or found.key != chunk.table.key or ticket.voids != self._recorder.voids or chunk.rows is None:
            _logger.info("%s changed while a chunk was read: it is read again", chunk.table.name)
            with self._readers.changed:
                self._begin_again(table)
            return
        columns = chunk.rows.columns
        if ticket.entries != self._recorder.entries and chunk.rows.count:
            self._recorder.finish()
            window = (entry for entry in self._log.read(ticket.log, self._log.end()) if entry.position > ticket.log)
            columns, left_out = without_changed(columns, found, window)
            if left_out:
                _logger.debug("%s: %d rows of a chunk changed meanwhile", found.name, left_out)
        count = len(columns[0])
        load = replace(table.load, after=chunk.rows.after, rows=table.load.rows + count, done=chunk.rows.last)
        self._append(table, load, passed, version=found if count else None, columns=columns)
        self._rows += count

    def _append(
        self,
        table: LoadingTable,
        load: TableLoad,
        passed: SourcePosition,
        *,
        version: TableSchema | None = None,
        columns: list[Any] | None = None,
        also: Mapping[tuple[str, str], TableLoad] = MappingProxyType({}),
    ) -> None:
        """A frame with the progress, and with the rows where there are any."""
        assert self._readers is not None
        data = []
        if version is not None:
            data = encode_chunk(version, columns or [], self._commit_clock.next(), passed)
        position = replace(passed, commit_ts=max(passed.commit_ts, self._commit_clock.last))
        self._recorder.append(FrameContent(data, position, loads={table.name: load, **also}))
        with self._readers.changed:
            table.load = load
            if load.done:
                self._finished[table.name] = load
            self._readers.changed.notify_all()

    def _check_gone(self, table: LoadingTable, passed: SourcePosition) -> None:
        """A table that was dropped has no rows any more; one that was renamed is loaded under its new name. A parked one
        waits for whoever resumes it."""
        found = self._schemas.in_force(*table.name)
        if found is not None:
            return  # parked
        assert self._readers is not None
        name = ".".join(table.name)
        heir = self._recorder.renamed(*table.name)
        if heir is not None and self._schemas.follows(*heir) and self._recorder.loads.get(heir) is None:
            _logger.info("%s is %s now, and its load goes on under that name", name, ".".join(heir))
            with self._readers.changed:
                self._readers.tables.append(LoadingTable(heir, replace(table.load, rows=0)))
                self._count += 1
            ended = replace(table.load, done=True, note=f"renamed to {'.'.join(heir)}")
            self._append(table, ended, passed, also={heir: self._readers.tables[-1].load})
            return
        _logger.info("%s is gone: what was not loaded of it is not loaded", name)
        self._append(table, replace(table.load, done=True, note="it is gone"), passed)

    def _begin_again(self, table: LoadingTable) -> None:
        """Under the lock: what was read ahead is thrown away."""
        assert self._readers is not None
        table.generation += 1
        table.ready.clear()
        table.schema = None  # until the next ticket
        self._readers.ticket_wanted = True
        self._readers.changed.notify_all()

    def facts(self) -> dict[str, Any] | None:
        """For status; None where nothing was ever loaded."""
        if not self._count:
            return None
        tables = self._readers.tables if self._readers is not None else []
        loading = [table for table in tables if not table.done]
        rows = sum(load.rows for load in self._finished.values()) + sum(table.load.rows for table in loading)
        left = sum(max(0, table.load.estimate - table.load.rows) for table in loading)
        seconds = self._clock.monotonic() - self._begun
        rate = self._rows / seconds if seconds > 0 else 0.0
        return {
            "tables": self._count,
            "done": self._count - len(loading),
            "rows": rows,
            "rows_left": left,
            "seconds_left": round(left / rate, 1) if rate and loading else None,
            "loading": [
                {"table": ".".join(table.name), "rows": table.load.rows, "estimate": table.load.estimate}
                for table in loading
                if table.taken
            ][:SHOWN_MAX],
        }


def _for_key(load: TableLoad, table: TableSchema) -> TableLoad:
    """The load, from its beginning where the table's primary key is another one now."""
    key = tuple(table.columns[i].name for i in table.primary_key)
    if {name.lower() for name in key} == {name.lower() for name in load.key}:
        return load
    if not key:
        raise SourceError(
            f"{table.name} lost its primary key while it was loaded",
            hint="give it one again, or leave it out (source.tables.exclude)",
        )
    return replace(load, key=key, after=())
