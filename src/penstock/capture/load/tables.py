"""The tables that are being loaded, and the threads that read them from the source.

A thread takes what is next: of the first table that has something to read, the next chunk of a range of its key. So all of
them read the ranges of one large table, or tables beside each other, and none waits for a table that is parked. They are
a few chunks ahead of what is in the log. What they may assume of the log they take from the newest `Ticket`; what they have
read they leave in `ReadingRange.ready` for the log's writer. All that both sides touch is behind one lock.
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
from penstock.sources.load import (
    CHUNK_BYTES,
    WHOLE,
    KeyRange,
    LoadedRows,
    Name,
    TableLoad,
    TableMoved,
    TableReader,
)
from penstock.sources.position import SourcePosition

AHEAD_MAX = 2  # chunks of a range that are read and not yet in the log; of all of them, so many a thread
RANGE_ROWS_MIN = 150_000  # a table is cut into ranges of no fewer rows, by the server's estimate
RANGES_A_THREAD = 4  # at most: ranges are never of exactly one size
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
    """What was read on a ticket, by a version of the table. Without `rows` the table was not as that says, or it cannot be
    read: `failure` says why, and `hint` what to do. Either way `high` is after whatever changed it."""

    ticket: Ticket
    table: TableSchema
    generation: int
    rows: LoadedRows | None
    high: SourcePosition
    failure: str = ""
    hint: str = ""


@dataclass
class ReadingRange:
    """A range of a table, by its number in `TableLoad.ranges`. `here`: its `after` is the last key that was read."""

    number: int
    here: KeyRange
    ready: deque[ReadChunk] = field(default_factory=deque)
    reading: Ticket | None = None  # a thread reads it on this one
    exhausted: bool = False  # nothing more is to be read, unless all of it is read again

    @property
    def busy(self) -> bool:
        return self.reading is not None


@dataclass
class LoadingTable:
    """One table. `schema`: the version in force; None while its rows cannot be read. `load`: what is in the log, and the
    ranges in which it is read. `generation` grows when chunks that were read are thrown away: reading begins again after
    `load`. `held`: why it cannot be read, in the version `held_version`, until somebody mends that; it is tried again after
    `held_until`."""

    name: Name
    load: TableLoad
    schema: TableSchema | None = None
    generation: int = 0
    ranges: list[ReadingRange] = field(default_factory=list)  # empty: it is not known yet in which ranges it is read
    splitting: bool = False
    rows_max: int = ROWS_FIRST
    held: str = ""
    held_version: int = 0
    held_until: float = 0.0

    def __post_init__(self) -> None:
        self.begin_again(self.load)

    @property
    def done(self) -> bool:
        return self.load.done

    @property
    def reading(self) -> bool:
        return bool(self.load.rows) or self.splitting or any(part.busy or part.ready for part in self.ranges)

    def begin_again(self, load: TableLoad) -> None:
        """What was read ahead is thrown away."""
        self.load = load
        self.generation += 1
        self.splitting = False
        self.ranges = [ReadingRange(i, part) for i, part in enumerate(load.ranges) if not part.done]


class _Work(NamedTuple):
    """What a thread is to do: read a chunk of `part`, or find the table's ranges where that is None."""

    table: LoadingTable
    part: ReadingRange | None
    ticket: Ticket
    schema: TableSchema
    load: TableLoad
    generation: int


class TableReaders:
    """The threads. `open_reader` is called by each of them. `rows_per_second`: of all together; 0: no limit. `wake` is called
    when something was read."""

    def __init__(
        self,
        loads: Mapping[Name, TableLoad],
        open_reader: Callable[[], TableReader],
        *,
        parallel: int,
        rows_per_second: int,
        clock: Clock,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.tables: list[LoadingTable] = []
        self.changed = threading.Condition()
        self.ticket: Ticket | None = None
        self.ticket_wanted = True
        self.error: PenstockError | None = None
        self._open_reader = open_reader
        self._parallel = parallel
        self._rows_per_second = rows_per_second
        self._clock = clock
        self._wake = wake
        self._may_read_at = 0.0
        self._closed = False
        self._readers: list[TableReader] = []
        self._working = 0  # threads that will look for more to read
        self._threads: list[threading.Thread] = []
        self.add(loads)

    def add(self, loads: Mapping[Name, TableLoad]) -> None:
        """These tables are loaded, too."""
        with self.changed:
            self.tables += [LoadingTable(name, load, rows_max=ROWS_FIRST) for name, load in loads.items()]
            self.ticket_wanted = True
            more = self._parallel - self._working if any(not table.done for table in self.tables) else 0
            threads = [threading.Thread(target=self._run, name=f"load-{i}", daemon=True) for i in range(more)]
            self._working += len(threads)
            self._threads = [thread for thread in self._threads if thread.is_alive()] + threads
            for thread in threads:
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
        failures = 0
        try:
            while (work := self._next()) is not None:
                try:
                    self._do(reader, work)
                    failures = 0
                except Unavailable as error:
                    failures += 1
                    self._give_back(work)
                    if failures > FAILURES_MAX:
                        raise Unavailable(f"the load cannot go on: {error.message}", hint=error.hint) from error
                    pause = min(_PAUSE_SECONDS_MAX, _PAUSE_SECONDS_FIRST * 2 ** (failures - 1))
                    _logger.warning("the load could not read, again in %.1f s: %s", pause, error.message)
                    self._pause(pause)
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
        self._wake()

    def oldest(self) -> Position | None:
        """Under the lock: the end of the log at which the oldest chunk was begun that is still to be appended."""
        parts = [part for table in self.tables for part in table.ranges]
        tickets = [part.reading for part in parts if part.reading is not None]
        tickets += [chunk.ticket for part in parts for chunk in part.ready]
        return min((ticket.log for ticket in tickets), default=None)

    # -- what is next ----------------------------------------------------------------------------------------------

    def _next(self) -> _Work | None:
        """Waits for something to read; None once there will be nothing more."""
        with self.changed:
            while not self._closed and any(not table.done for table in self.tables):
                work = self._find()
                if work is not None:
                    self.ticket_wanted = True
                    return work
                self.changed.wait()
            self._working -= 1
        return None

    def _find(self) -> _Work | None:
        """Under the lock."""
        ticket = self.ticket
        ahead = sum(len(part.ready) + part.busy for table in self.tables for part in table.ranges)
        if ticket is None or ahead >= AHEAD_MAX * self._parallel:
            return None
        for table in self.tables:
            if table.done or table.schema is None or table.splitting:
                continue
            if not table.ranges:
                table.splitting = True
                return _Work(table, None, ticket, table.schema, table.load, table.generation)
            for part in table.ranges:
                if not (part.busy or part.exhausted) and len(part.ready) < AHEAD_MAX:
                    part.reading = ticket
                    return _Work(table, part, ticket, table.schema, table.load, table.generation)
        return None

    def _give_back(self, work: _Work) -> None:
        with self.changed:
            if work.part is not None:
                work.part.reading = None
            elif work.generation == work.table.generation:
                work.table.splitting = False
            self.changed.notify_all()

    # -- doing it --------------------------------------------------------------------------------------------------

    def _do(self, reader: TableReader, work: _Work) -> None:
        if work.part is None:
            self._split(reader, work)
        else:
            self._read(reader, work, work.part)

    def _split(self, reader: TableReader, work: _Work) -> None:
        parts = min(RANGES_A_THREAD * self._parallel, work.load.estimate // RANGE_ROWS_MIN)
        ranges = WHOLE
        if self._parallel > 1 and parts > 1:
            try:
                ranges = reader.split(work.schema, work.load, parts)
            except Unavailable:
                raise
            except PenstockError as error:  # the first chunk meets it too, and it is dealt with there
                _logger.info("%s", error.message)
        with self.changed:
            if work.generation == work.table.generation:
                work.table.begin_again(replace(work.load, ranges=ranges))
            self.changed.notify_all()

    def _read(self, reader: TableReader, work: _Work, part: ReadingRange) -> None:
        table = work.table
        self._throttle()
        rows: LoadedRows | None = None
        failure = hint = ""
        try:
            rows = reader.read(work.schema, work.load, part.here, work.ticket.source, self._limited(table.rows_max))
            high = rows.high
            self._account(rows.count)
        except TableMoved as moved:
            _logger.info("%s", moved.message)
            high = reader.now()
        except Unavailable:
            raise
        except PenstockError as error:  # of this table: the others are read on
            failure, hint, high = error.message, error.hint, reader.now()
        with self.changed:
            part.reading = None
            if rows is not None:
                part.here = replace(part.here, after=rows.after)
                table.rows_max = _next_rows(table.rows_max, rows)
            part.exhausted = rows is None or rows.last  # without rows: until the log's writer has seen why
            if work.generation == table.generation:
                part.ready.append(ReadChunk(work.ticket, work.schema, work.generation, rows, high, failure, hint))
            self.changed.notify_all()
        self._wake()

    def _limited(self, rows_max: int) -> int:
        return min(rows_max, self._rows_per_second) if self._rows_per_second else rows_max

    def _throttle(self) -> None:
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
