"""Planning: which entries the next batch covers, and how they are split into ranges.

An offset is the position to read next. It is always the entry after the last one of the previous batch, whether or
not such an entry exists (the log may continue in a later ledger). A batch ends at or before the end of the last
complete transaction, and covers at most `batch_bytes_max` unless a single entry is larger, or less where its rows would
grow to more than delivery has room for, or than is good to publish at once (`Growth`). It has about `FRAMES_MAX` frames at
most: planning takes no more memory however long the log is. Ranges are contiguous and together cover the batch; each
carries what a task needs to know the table schemas in force at its first entry, and those that are made inside it
(schema/pack.py).

Nothing here is durable: a lost planner is rebuilt from the log and an offset.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import StaleRun
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.pack import PackedSchemas, SchemaPacker
from penstock.schema.view import SchemaAt, SchemaView
from penstock.spark.job import MIB
from penstock.spark.range_manifest import RangeManifest
from penstock.spark.sql.share import SqlShare

GROWTH_BATCHES = 8  # that are looked back at
STAGED_BYTES = 96 * MIB  # what a batch is planned to grow to: one and a half files of the default size
FIRST_BATCH_BYTES = 8 * MIB  # of the log
FRAMES_MAX = 1 << 16  # of a batch: those without data, as of a server whose traffic is all filtered, fill no bytes


@dataclass(frozen=True, slots=True)
class FrameSummary:
    """What planning knows of a frame. `whole`: no transaction is open after it. `void`: the commit_ts of a transaction that
    never happened; its parts are in earlier frames. `resumes`: a parked table is resumed, for earlier frames.
    """

    position: Position
    data_bytes: int
    whole: bool
    schemas: tuple[TableSchema, ...] = ()
    void: tuple[int, ...] = ()
    resumes: bool = False


@dataclass(frozen=True, slots=True)
class PlanSettings:
    batch_bytes_max: int = 256 * MIB
    range_bytes_min: int = 4 * MIB  # below this a second task costs more than it saves
    parallelism: int = 2
    ranges_per_core: int = 2  # so that a slow range does not leave a core idle


@dataclass(frozen=True, slots=True)
class Routing:
    """What the tasks of one batch must know of dispatchers beside the run's resume table. `held`: their rows are only looked at.
    `only`: nobody else is of interest; None: everybody is. `resume`: in the place of what the resume table says."""

    held: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    resume: Mapping[str, dict[str, Any]] = field(default_factory=dict)


EVERYBODY = Routing()


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """What a task does, and travels to it: entries `start` to `end`, both included. `pack` are the schemas in force at some position before, `schemas` those
    made since and inside, in the order of their positions. `void`: the commit_ts of transactions whose parts may be
    among the entries, and must be passed over.

    `first` is the first of the entries, where reading begins. `start` is an offset: where the log goes on in a later
    ledger, it names no entry, and its ledger may be trimmed as soon as the range before this one is delivered.
    """

    start: Position
    first: Position
    end: Position
    data_bytes: int
    pack: bytes
    schemas: tuple[SchemaAt, ...]
    void: tuple[int, ...] = ()
    routing: Routing = EVERYBODY
    sql: SqlShare | None = None  # of tables whose rows Spark SQL shapes

    @property
    def is_extra(self) -> bool:
        """Whether it is for some dispatchers alone, beside the regular ranges."""
        return self.routing.only is not None

    def view(self) -> SchemaView:
        return PackedSchemas(self.pack, self.schemas)


def following(position: Position) -> Position:
    """The offset after an entry."""
    return Position(position.ledger_id, position.entry_id + 1)


def preceding(offset: Position) -> Position:
    """The last entry before an offset; entry -1 where the offset is the start of a ledger."""
    return Position(offset.ledger_id, offset.entry_id - 1)


class Planner:
    """Plans batches. `more` gives the log's next frames in order, and an empty sequence at its durable end. `begins_batch`:
    a frame that makes such a version of a table is the first of its batch."""

    def __init__(
        self,
        more: Callable[[], Sequence[FrameSummary]],
        settings: PlanSettings,
        in_force: Iterable[SchemaAt] = (),
        begins_batch: Callable[[TableSchema], bool] = lambda _: False,
    ) -> None:
        self._next = more
        self._begins_batch = begins_batch
        self._settings = settings
        self._ahead: deque[FrameSummary] = deque()
        self._behind = SchemaPacker(in_force)  # the schemas in force before the first frame of `_ahead`

    def end_of_batch(self, start: Position, bytes_max: int | None = None) -> Position:
        """The offset where a batch from `start` ends; `start` itself where there is nothing to plan. `bytes_max`: what it may
        take of the log, where that is less than the settings say."""
        self._forget_before(start)
        most = min(self._settings.batch_bytes_max, bytes_max or self._settings.batch_bytes_max)
        end: Position | None = None
        pending: Position | None = None  # the last frame that fits; it counts once a transaction ends at or after it
        total = 0
        index = 0
        while True:
            if index == len(self._ahead):
                frames = self._more()
                if not frames:
                    break
                self._ahead.extend(frames)
                self._forget_before(start)
                continue
            frame = self._ahead[index]
            index += 1
            total += frame.data_bytes
            if pending is not None and any(map(self._begins_batch, frame.schemas)):
                total = max(total, most + 1)  # nothing more fits
            if total <= most or pending is None:
                pending = frame.position
            if frame.whole:
                end = pending
                if total >= most or index >= FRAMES_MAX:
                    break
        return start if end is None else following(end)

    def ranges(
        self, start: Position, end: Position, parallelism: int | None = None, routing: Routing = EVERYBODY
    ) -> list[PlannedRange]:
        """The batch between two offsets as contiguous ranges of about the same size. Deterministic. `parallelism`: how many
        tasks can run now, where that is not what the settings say.

        Empty where the two offsets are equal.
        """
        if start == end:
            return []
        self._forget_before(start)
        # To the end of the last transaction of the range, which may lie after it: there it turns out to be void.
        while not (self._ahead and self._ahead[-1].position >= preceding(end) and self._ahead[-1].whole):
            frames = self._more()
            if not frames:
                break
            self._ahead.extend(frames)
            self._forget_before(start)
        void = tuple(sorted(commit_ts for frame in self._ahead for commit_ts in frame.void))
        frames = [frame for frame in self._ahead if frame.position < end]
        pack, since = self._behind.pack()
        total = sum(frame.data_bytes for frame in frames)
        most = (parallelism or self._settings.parallelism) * self._settings.ranges_per_core
        count = max(1, min(most, len(frames), total // self._settings.range_bytes_min))
        ranges: list[PlannedRange] = []
        offset, size, made = start, 0, list[SchemaAt]()
        first: Position | None = None
        known = list(since)
        done = 0
        for index, frame in enumerate(frames):
            first = first or frame.position
            size += frame.data_bytes
            made.extend(SchemaAt(frame.position, table) for table in frame.schemas)
            left = len(frames) - index - 1
            full = done + size >= total * (len(ranges) + 1) / count
            if left and not (full and len(ranges) < count - 1):
                continue
            last = frame.position if left else preceding(end)
            known += made
            schemas = tuple(sorted(known, key=lambda s: s.position))
            ranges.append(PlannedRange(offset, first, last, size, pack, schemas, void, routing))
            done += size
            offset, first, size, made = following(last), None, 0, []
        return ranges or [PlannedRange(start, start, preceding(end), 0, pack, tuple(known), void, routing)]

    def _more(self) -> Sequence[FrameSummary]:
        frames = self._next()
        if any(frame.resumes for frame in frames):
            # What this run held back is delivered by a new one, which starts after the last entry that everybody has.
            raise StaleRun("a parked table was resumed", hint="begin a new run")
        return frames

    def _forget_before(self, start: Position) -> None:
        while self._ahead and self._ahead[0].position < start:
            frame = self._ahead.popleft()
            for table in frame.schemas:
                self._behind.take(SchemaAt(frame.position, table))


class Growth:
    """What the rows of a changefeed grow to, over its runs: bytes that its tasks staged for each byte of the log that they
    read. Delivery refuses a batch that it cannot hold, and the run that follows pays for it: so a batch takes no more of the
    log than fits into the room that delivery has. What a batch holds may change from one to the next (another table,
    compressed events, rows that are not wanted), so the most of recent batches counts.

    Nor is a batch planned to grow to more than `STAGED_BYTES`, whatever room there is: nothing of it is written before all of
    it is staged, so a large one leaves the sink idle, and then the cores. Before the first one nothing is known: it takes
    `FIRST_BATCH_BYTES`."""

    def __init__(self) -> None:
        self._ratios: deque[float] = deque(maxlen=GROWTH_BATCHES)

    def note(self, manifests: Iterable[RangeManifest]) -> None:
        """A batch is over, or was refused: then what it staged until then counts."""
        read = staged = 0
        for manifest in manifests:
            read += manifest.read_bytes
            staged += manifest.bytes
        if read and staged:  # a batch of which the sink had everything already says nothing
            self._ratios.append(staged / read)

    @property
    def ratio(self) -> float | None:
        return max(self._ratios, default=None)

    def raw_bytes(self, room_bytes: int) -> int:
        """How much of the log a batch may take, for no more than `room_bytes` to be staged. At least 1: a batch always has an
        entry."""
        ratio = self.ratio
        return FIRST_BATCH_BYTES if ratio is None else max(1, int(min(room_bytes, STAGED_BYTES) / ratio))
