"""A stream over a sink's prefix: the files that indexes name, each once, in bounded batches.

A table's files have one order: version, day, number; all three only grow, and a file that an index names never changes. So
the last file that was read of each table is all that an offset has to say. It also says the log whose changes are here, and
up to which day everything was read: files of days before it may expire unread by nobody.

The checkpoint does not hold files back, as it does for a batch read, because a file cannot be read in part now and in part
later. Rows of one table come in the order of their changes; which tables are how far is not the same at every moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.delivery.storage.layout import date_of
from penstock.delivery.storage.owner import ANY_LOG
from penstock.errors import BadInput
from penstock.schema.model import TableSchema
from penstock.spark.tables.options import Options
from penstock.spark.tables.sink import DataFile, Directory, Sink
from penstock.spark.tables.streams.evolution import columns_changed, has_other_columns

FILES_MAX = 1000  # of a batch: each is a request, and a place in the plan
_SIZES_AT_ONCE = 16
_LOOK_SECONDS_MIN = 1.0  # between two listings of the prefix
_LOOK_SHARE = 10  # and at least so many times as long as a listing takes
_NEW_CHECKPOINT = "start with a new checkpointLocation: it reads everything that is here"

Place = tuple[int, str, int]  # version, day, number


@dataclass(frozen=True, slots=True)
class SinkOffset:
    """`read`: the place of the last file that was read, by the directory of its table. `day`: every file of earlier days was
    read, or had expired before the stream began."""

    log: str
    day: str
    read: Mapping[str, Place] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The same text for the same offset: Spark compares the text."""
        files = {table: "/".join(map(str, place)) for table, place in sorted(self.read.items())}
        return {"log": self.log, "day": self.day, "files": files}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SinkOffset:
        try:
            read = {}
            for table, text in value["files"].items():
                version, date, number = text.split("/")
                read[table] = (int(version), date, int(number))
            return cls(value["log"], value["day"], read)
        except (KeyError, ValueError, AttributeError) as error:
            raise BadInput(
                f"the checkpoint of this query is not one of a sink's prefix: {str(value)[:100]}",
                hint="give each query a checkpointLocation of its own",
            ) from error


@dataclass(frozen=True, slots=True)
class _Listing:
    """The directories at or after those of an offset, and the sink as it was just before they were listed."""

    sink: Sink
    after: Mapping[str, Place]
    directories: list[Directory]

    def covers(self, start: SinkOffset) -> bool:
        """Whether every file after `start` that was here then is listed."""
        return all(table in start.read and start.read[table] >= place for table, place in self.after.items())


class SinkStream:
    """`target`: the version whose columns the stream has; None for all changes of all tables. For one thread."""

    def __init__(self, options: Options, target: TableSchema | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._target = target
        self._clock = clock
        self._listing: _Listing | None = None
        self._look_at = 0.0  # when the prefix is listed again at the earliest
        self._ends = False
        self._versions: dict[tuple[str, str, int], TableSchema] = {}

    def initial(self) -> SinkOffset:
        """The offset of a new stream."""
        if self._options.start == "earliest":
            sink = Sink.open(self._options.path)
            return SinkOffset(sink.owner.log_uuid, sink.expired_before)
        sink, directories = self._opened({})
        read = {_table(directory): (*directory.place, directory.last) for directory in directories}
        return SinkOffset(sink.owner.log_uuid, _day(sink), read)  # the last one of each table counts

    def stop_at_end(self) -> None:
        """The stream goes no further than to what is here when the next batch is planned."""
        self._ends = True

    def end_of_batch(self, start: SinkOffset) -> SinkOffset:
        """The offset where the next batch ends; `start` where there is nothing new.

        Raises `ColumnsChanged` where the next file has other columns, and `BadInput` where files after `start` are gone.
        """
        listing = self._listed(start)
        if not self._ends and next(_unread(listing, start), None) is None and self._clock.monotonic() >= self._look_at:
            listing = self._look(start)
        read, bytes_left = dict(start.read), self._options.batch_bytes_max
        day = _day(listing.sink)
        for taken, (directory, number, size) in enumerate(self._sized(listing, start)):
            version = self._version(listing.sink, directory)
            changed = has_other_columns(version, self._target)
            if changed and not taken:
                raise columns_changed(version, f"version {version.version}")
            if changed or taken == FILES_MAX or (taken and size > bytes_left):
                day = min(day, directory.date)
                break
            read[_table(directory)] = (*directory.place, number)
            bytes_left -= size
        return SinkOffset(start.log, max(start.day, day), read)

    def files(self, start: SinkOffset, end: SinkOffset) -> list[tuple[DataFile, TableSchema]]:
        """The files between two offsets, each with its version; the same ones however often it is asked."""
        listing = self._listed(start)
        found: list[tuple[DataFile, TableSchema]] = []
        reached = set()
        for directory, first in _unread(listing, start):
            last = end.read.get(_table(directory))
            if last is None or directory.place > last[:2]:
                continue
            if directory.place == last[:2]:
                if directory.last < last[2]:
                    raise _gone(listing.sink, _table(directory), last)
                reached.add(_table(directory))
            version = self._version(listing.sink, directory)
            if has_other_columns(version, self._target):  # the columns were declared before this batch was planned
                raise columns_changed(version, f"version {version.version}")
            ending = last[2] if directory.place == last[:2] else directory.last
            found += [(file, version) for file in listing.sink.files_of(directory._replace(last=ending), first)]
        for table, place in end.read.items():
            if start.read.get(table) != place and table not in reached:
                raise _gone(listing.sink, table, place)
        return found

    # -- the prefix ---------------------------------------------------------------------------------------------------

    def _listed(self, start: SinkOffset) -> _Listing:
        listing = self._listing
        return listing if listing is not None and listing.covers(start) else self._look(start)

    def _look(self, start: SinkOffset) -> _Listing:
        began = self._clock.monotonic()
        sink, directories = self._opened(start.read)
        _check_log(sink, start)
        if sink.expired_before > start.day:
            raise BadInput(
                f"files before {sink.expired_before} have expired at {sink.url}, and this query has read those before "
                f"{start.day or 'no day'}: changes between may be lost to it",
                hint=_NEW_CHECKPOINT,
            )
        listing = _Listing(sink, start.read, directories)
        last = {(_table(directory), directory.place): directory.last for directory in listing.directories}
        for table, place in start.read.items():
            if place[1] >= sink.expired_before and last.get((table, place[:2]), 0) < place[2]:
                raise _gone(sink, table, place)
        ended = self._clock.monotonic()
        self._look_at = ended + max(_LOOK_SECONDS_MIN, _LOOK_SHARE * (ended - began))
        self._listing = listing
        return listing

    def _opened(self, read: Mapping[str, Place]) -> tuple[Sink, list[Directory]]:
        """The sink, and then its names: what its checkpoint vouches for is among them, unless it has expired by now."""
        while True:
            sink = Sink.open(self._options.path)
            directories = self._directories(sink, read)
            if not sink.has_expired_more():  # else some of a day may be missing, and others not
                return sink, directories

    def _directories(self, sink: Sink, read: Mapping[str, Place]) -> list[Directory]:
        def wanted(directory: Directory) -> bool:
            if self._target is not None and directory[:2] != (self._target.schema, self._target.table):
                return False
            place = read.get(_table(directory))
            return place is None or directory.place >= place[:2]

        return sink.directories(self._options.table, wanted)

    def _sized(self, listing: _Listing, start: SinkOffset) -> Iterator[tuple[Directory, int, int]]:
        """The files that come next, with their sizes: asked for a few at a time, because a batch takes few of many."""
        numbered = (
            (directory, number)
            for directory, first in _unread(listing, start)
            for number in range(first, directory.last + 1)
        )
        sink = listing.sink

        def size(item: tuple[Directory, int]) -> int:
            return sink.objects.size(sink.layout.data_path(item[0].path, item[1])) or 0

        with ThreadPoolExecutor(_SIZES_AT_ONCE) as pool:
            while some := list(islice(numbered, _SIZES_AT_ONCE)):
                for item, found in zip(some, pool.map(size, some), strict=True):
                    yield *item, found

    def _version(self, sink: Sink, directory: Directory) -> TableSchema:
        key = directory[:3]
        if key not in self._versions:
            history = sink.history(self._options.table)
            self._versions = {table.key: table for tables in history.versions.values() for table in tables}
        if key not in self._versions:
            raise BadInput(f"{sink.url}: there is no schema file for {directory.path}")
        return self._versions[key]


def _unread(listing: _Listing, start: SinkOffset) -> Iterator[tuple[Directory, int]]:
    """Directories with files after the offset, and the first number of these: by day, so that older days are read before
    they expire, and in the order of changes for each table."""
    for directory in sorted(listing.directories, key=lambda one: (one.date, one.version, one.path)):
        place = start.read.get(_table(directory))
        if place is None or directory.place > place[:2]:
            yield directory, 1
        elif directory.place == place[:2] and directory.last > place[2]:
            yield directory, place[2] + 1


def _table(directory: Directory) -> str:
    return directory.path.rsplit("/", 2)[0]


def _day(sink: Sink) -> str:
    """Every file of the days before it is here."""
    return date_of(sink.checkpoint_ts) if sink.checkpoint_ts else ""


def _check_log(sink: Sink, start: SinkOffset) -> None:
    owner = sink.owner
    if owner.log_uuid not in (start.log, ANY_LOG) and start.log != ANY_LOG and not owner.adopted:
        raise BadInput(
            f"{sink.url} holds the changes of another log than the one that this query has read from: the sink was made anew",
            hint=_NEW_CHECKPOINT,
        )


def _gone(sink: Sink, table: str, place: Place) -> BadInput:
    return BadInput(
        f"{sink.url}: this query has read {table} up to file {place[2]} of version {place[0]}, {place[1]}, and that file is "
        "not here any more",
        hint=f"files were deleted, or the sink was made anew: {_NEW_CHECKPOINT}",
    )
