"""The tables that are being loaded, and the threads that read them from the source.

Each thread reads one table at a time, chunk after chunk, a few ahead of what is in the log. What it may assume of the
log it takes from the newest `Ticket`; what it has read it leaves in `LoadingTable.ready` for the log's writer. All that
both sides touch is behind one lock.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from penstock.clock import Clock
from penstock.errors import PenstockError, Unavailable
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.sources.load import CHUNK_BYTES, LoadedRows, TableLoad, TableMoved, TableReader
from penstock.sources.position import SourcePosition

AHEAD_MAX = 2  # chunks of a table that are read and not yet in the log
ROWS_FIRST = 2_000  # of a table's first chunk, whose rows may be large
ROWS_MAX = 200_000
_GROWTH_MAX = 8  # from one chunk to the next
FAILURES_MAX = 12  # in a row, of one thread: about a minute and a half
_PAUSE_SECONDS_FIRST = 0.2
_PAUSE_SECONDS_MAX = 10.0
_STOP_SECONDS_MAX = 5.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ticket:
    """A moment of the log: everything before `source` is in it, up to `log`. `entries` and `voids`: what the recorder had
    counted by then."""

    log: Position
    source: SourcePosition
    entries: int
    voids: int


class ReadChunk(NamedTuple):
    """What was read on a ticket, by a version of the table. Without `rows` the table was not as that says; `high` is after
    whatever changed it."""

    ticket: Ticket
    table: TableSchema
    generation: int
    rows: LoadedRows | None
    high: SourcePosition


@dataclass
class LoadingTable:
    """One table. `schema`: the version in force; None while its rows cannot be read. `load`: what is in the log.
    `generation` grows when chunks that were read are thrown away: reading begins again after `load`."""

    name: tuple[str, str]
    load: TableLoad
    schema: TableSchema | None = None
    generation: int = 0
    ready: deque[ReadChunk] = field(default_factory=deque)
    taken: bool = False  # by a thread

    @property
    def done(self) -> bool:
        return self.load.done


class TableReaders:
    """The threads. `open_reader` is called by each of them. `rows_per_second`: of all together; 0: no limit."""

    def __init__(
        self,
        loads: Mapping[tuple[str, str], TableLoad],
        open_reader: Callable[[], TableReader],
        *,
        parallel: int,
        rows_per_second: int,
        clock: Clock,
    ) -> None:
        self.tables = [LoadingTable(name, load) for name, load in loads.items()]
        self.changed = threading.Condition()
        self.ticket: Ticket | None = None
        self.ticket_wanted = True
        self.error: PenstockError | None = None
        self._open_reader = open_reader
        self._rows_per_second = rows_per_second
        self._clock = clock
        self._may_read_at = 0.0
        self._closed = False
        self._readers: list[TableReader] = []
        self._threads = [
            threading.Thread(target=self._run, name=f"load-{number}", daemon=True)
            for number in range(min(parallel, len(self.tables)))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Ends the threads; what they are reading is lost, and nothing else."""
        with self.changed:
            self._closed = True
            self.changed.notify_all()
            readers = list(self._readers)
        for reader in readers:
            reader.close()
        for thread in self._threads:
            thread.join(_STOP_SECONDS_MAX)

    def _run(self) -> None:
        reader = self._open_reader()
        with self.changed:
            self._readers.append(reader)
        try:
            while (table := self._next_table()) is not None:
                self._read_table(reader, table)
        except PenstockError as error:
            self._fail(error)
        except Exception as error:  # a bug: the capture process says so and ends
            _logger.exception("the load failed")
            self._fail(PenstockError(f"the load failed: {error!r}"))
        finally:
            reader.close()

    def _fail(self, error: PenstockError) -> None:
        with self.changed:
            if not self._closed:
                self.error = self.error or error

    def _next_table(self) -> LoadingTable | None:
        with self.changed:
            for table in self.tables:
                if not table.taken and not table.done and not self._closed:
                    table.taken = True
                    return table
        return None

    def _read_table(self, reader: TableReader, table: LoadingTable) -> None:
        generation = -1
        load = table.load
        exhausted = False
        failures = 0
        rows_max = ROWS_FIRST
        while True:
            with self.changed:
                while not (
                    self._closed or table.done or self._may_read(table, exhausted and generation == table.generation)
                ):
                    self.changed.wait()
                if self._closed or table.done:
                    return
                if generation != table.generation:
                    generation, load, exhausted = table.generation, table.load, False
                ticket, schema = self.ticket, table.schema
                self.ticket_wanted = True
            assert ticket is not None and schema is not None
            self._throttle(rows_max)
            try:
                rows = reader.read(schema, load, ticket.source, self._limited(rows_max))
                chunk = ReadChunk(ticket, schema, generation, rows, rows.high)
                load = replace(load, after=rows.after)
                exhausted = rows.last
                rows_max = _next_rows(rows_max, rows)
                failures = 0
                self._account(rows.count)
            except TableMoved as moved:
                _logger.info("%s", moved.message)
                chunk = ReadChunk(ticket, schema, generation, None, reader.now())
                exhausted = True  # until the log's writer has seen why
            except Unavailable as error:
                failures += 1
                if failures > FAILURES_MAX:
                    raise Unavailable(f"the load cannot go on: {error.message}", hint=error.hint) from error
                pause = min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS_FIRST * 2 ** (failures - 1))
                _logger.warning("the load lost the source, again in %.1f s: %s", pause, error.message)
                self._pause(pause)
                continue
            with self.changed:
                if generation == table.generation:
                    table.ready.append(chunk)

    def _may_read(self, table: LoadingTable, exhausted: bool) -> bool:
        return self.ticket is not None and table.schema is not None and not exhausted and len(table.ready) < AHEAD_MAX

    def _limited(self, rows_max: int) -> int:
        return min(rows_max, self._rows_per_second) if self._rows_per_second else rows_max

    def _throttle(self, rows_max: int) -> None:
        del rows_max
        with self.changed:
            wait = self._may_read_at - self._clock.monotonic()
        if wait > 0:
            self._pause(wait)

    def _account(self, count: int) -> None:
        if self._rows_per_second:
            with self.changed:
                start = max(self._may_read_at, self._clock.monotonic())
                self._may_read_at = start + count / self._rows_per_second

    def _pause(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        with self.changed:
            while not self._closed and (left := until - self._clock.monotonic()) > 0:
                self.changed.wait(left)


def _next_rows(rows_max: int, rows: LoadedRows) -> int:
    """How many rows the next chunk should have, by the size of those of this one."""
    if not rows.count:
        return rows_max
    wanted = int(CHUNK_BYTES / max(1.0, rows.bytes / rows.count))
    return max(1, min(wanted, ROWS_MAX, rows_max * _GROWTH_MAX))
