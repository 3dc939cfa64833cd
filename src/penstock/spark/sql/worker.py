"""What happens in a Python worker: both ends of the query of one table, and what the task of the range makes of its result.

    range ─ rows of the log, by the rules before the SELECT ─► Spark SQL ─► a file, for this user alone ─► the range's task

The task reads the same range again and comes to the same images in the same order, because decoding is a function of the
log alone. So what Spark made of them is found by their numbers, and checked by their seqs (`rules/sql/rows.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError, Unavailable
from penstock.files.private import make_private_directory, open_private, write_private
from penstock.rules.images import Images
from penstock.rules.sql.rows import (
    Selection,
    Sql,
    SqlPlan,
    SqlRows,
    first_after,
    image_count,
    outcome,
    physical,
    plan_key,
    relation_rows,
)
from penstock.schema.changes import OP_DELETE, OP_INSERT
from penstock.schema.model import Column
from penstock.spark.failure import error_to_text
from penstock.spark.plan import PlannedRange
from penstock.spark.range_manifest import RangeManifest
from penstock.spark.sql.session import plan_of
from penstock.spark.sql.share import SqlShare

BATCH_ROWS = 10_000
ERROR = "error"  # the file with what was wrong with the log, where a range could not be read
ANSWER = "part int, path string, rows bigint"

Take = Callable[[str, Selection, Images], SqlRows]


class KnownPlans(Sql):
    """What the driver has asked Spark about; `take` is given the images."""

    def __init__(self, take: Take | None = None) -> None:
        self._known: dict[str, str] = {}
        self._take = take

    def learn(self, share: SqlShare | None) -> None:
        if share is not None:
            self._known |= share.plans

    def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
        known = self._known.get(plan_key(statement, columns))
        if known is None:  # a mistake of ours; a new run asks again
            raise Unavailable("the driver has not asked Spark about a version of a table with sql")
        return plan_of(known)

    def rows(self, table: str, selection: Selection, images: Images) -> SqlRows:
        if self._take is None:
            return super().rows(table, selection, images)
        return self._take(table, selection, images)


# ---- the query's first end


@dataclass(frozen=True)
class RangeRows:
    """The rows of a table in each of the ranges, up to `images_max` of them; called by Spark with the numbers of ranges. What
    is wrong with the log is written into `directory`: Spark would repeat it, and bury it in its own words."""

    job: str
    ranges: tuple[PlannedRange, ...]
    table: tuple[str, str]
    directory: str
    images_max: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            parts: Any = batch.column(0).to_pylist()
            for part in parts:
                try:
                    yield from self._of(self.ranges[part])
                except PenstockError as error:
                    write_private(Path(self.directory) / ERROR, error_to_text(error, "source"))
                    return

    def _of(self, taken: PlannedRange) -> Iterator[pa.RecordBatch]:
        from penstock.spark.task import job_of, steps_of, versioned_rules

        job = job_of(self.job)
        job.configure_cache()
        waiting: list[pa.Table] = []
        count = 0

        def take(_table: str, selection: Selection, images: Images) -> SqlRows:
            nonlocal count
            waiting.append(relation_rows(images, selection.columns, selection.plan, count))
            count += image_count(images)
            return stopped(images, selection.plan, "", 0)  # the rules after it have no rows

        plans = KnownPlans(take)
        plans.learn(taken.sql)
        rules = versioned_rules(job, plans).at(taken.start)
        manifest = RangeManifest(taken.start, taken.end, 0)
        for step in steps_of(job, taken, manifest, rules, only=self.table):
            deque(step, maxlen=0)
            yield from self._given(waiting)
            if self.images_max is not None and count >= self.images_max:
                break
        yield from self._given(waiting)

    def _given(self, waiting: list[pa.Table]) -> Iterator[pa.RecordBatch]:
        for table in waiting:
            count = table.num_rows
            if self.images_max is not None:
                numbers = np.asarray(table.column(table.num_columns - 1).to_numpy(), np.int64)
                count = first_after(numbers, self.images_max)
            yield from table.slice(0, count).to_batches(max_chunksize=BATCH_ROWS)
        waiting.clear()


# ---- its last end


@dataclass(frozen=True)
class ResultFiles:
    """Writes what Spark made of a part into a file of this attempt, and answers with its name."""

    directory: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context: Any = TaskContext.get()
        part, attempt = int(context.partitionId()), int(context.taskAttemptId())
        make_private_directory(Path(self.directory))
        path = Path(self.directory) / f"{part}-{attempt}.arrow"
        rows = 0
        writer: pa.RecordBatchStreamWriter | None = None
        with open_private(path, "wb") as opened:
            file: Any = opened
            for batch in batches:
                if writer is None:
                    writer = pa.ipc.new_stream(file, batch.schema)
                writer.write_batch(batch)
                rows += batch.num_rows
            if writer is not None:
                writer.close()
        yield pa.RecordBatch.from_pydict(
            {"part": pa.array([part], pa.int32()), "path": [str(path)], "rows": pa.array([rows], pa.int64())}
        )


class ResultReader:
    """A result, in the order of the images."""

    def __init__(self, path: str) -> None:
        file: Any = open_private(Path(path), "rb") if path else None
        self._file = file
        empty = file is None or not Path(path).stat().st_size  # there is no row
        self._stream: Any = None if empty else pa.ipc.open_stream(file)
        self._held: list[pa.RecordBatch] = []

    def before(self, number: int, plan: SqlPlan) -> pa.Table:
        """The rows of images before `number` that were not given out yet."""
        taken = []
        while True:
            if not self._held:
                batch = next(iter(self._stream), None) if self._stream is not None else None
                if batch is None:
                    break
                self._held.append(batch)
            batch = self._held.pop()
            count = first_after(np.asarray(batch.column(0).to_numpy(), np.int64), number)
            taken.append(batch.slice(0, count))
            if count < batch.num_rows:
                self._held.append(batch.slice(count))
                break
        if self._stream is None:
            names = [f"c{at}" for at in range(len(plan.computed) + 1)]
            return pa.table({name: pa.nulls(0, pa.int64() if name == "c0" else _arrow(plan, name)) for name in names})
        return pa.Table.from_batches(taken, self._stream.schema)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _arrow(plan: SqlPlan, name: str) -> Any:
    """The type of a column of a result without rows."""
    kind = plan.computed[int(name[1:]) - 1].type
    if kind.startswith("decimal("):
        precision, scale = kind[len("decimal(") : -1].split(",")
        return pa.decimal128(int(precision), int(scale))
    known: dict[str, Any] = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp_ntz": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    return known.get(kind, pa.string())


# ---- in the task


class RangeResults(KnownPlans):
    """What Spark made of the rows of the range that the task is at. Of a worker, which has one task at a time."""

    def __init__(self) -> None:
        super().__init__(self._rows)
        self._share = SqlShare()
        self._readers: dict[str, ResultReader] = {}
        self._next: dict[str, int] = {}

    def hold(self, share: SqlShare | None) -> None:
        """From here on the rows are those of another range."""
        for reader in self._readers.values():
            reader.close()
        self._readers, self._next = {}, {}
        self._share = share or SqlShare()
        self.learn(share)

    def _rows(self, table: str, selection: Selection, images: Images) -> SqlRows:
        plan = selection.plan
        first = self._next.get(table, 0)
        self._next[table] = first + image_count(images)
        reason, at = self._share.stops.get(table, ("", 0))
        if table not in self._share.files:
            if not reason:
                raise Unavailable(f"Spark has made nothing of the rows of {table} between these positions")
            return stopped(images, plan, reason, 0)
        if table not in self._readers:
            self._readers[table] = ResultReader(self._share.files[table])
        return rows_of_result(images, plan, self._readers[table], first, (reason, at))


def rows_of_result(images: Images, plan: SqlPlan, reader: ResultReader, first: int, stop: tuple[str, int]) -> SqlRows:
    """What Spark made of these images, the first of which has the number `first`. `stop`: why it gave up, and at which number;
    an empty reason where it did not."""
    reason, at = stop
    end = first + image_count(images)
    result = reader.before(end, plan)
    if not reason or at >= end:
        return outcome(images, plan, result, first)
    row = row_of_image(images, max(0, at - first))
    whole = images.slice(row)
    made = outcome(whole, plan, result.slice(0, _rows_before(result, first + image_count(whole))), first)
    return _padded(images, plan, made, reason, row)


def _rows_before(result: pa.Table, number: int) -> int:
    return first_after(np.asarray(result.column(0).to_numpy(), np.int64), number)


def row_of_image(images: Images, image: int) -> int:
    """The row that the image of this number belongs to."""
    counts = (images.op != OP_INSERT).astype(np.int64) + (images.op != OP_DELETE)
    return int(np.searchsorted(np.cumsum(counts), image, side="right"))


def stopped(images: Images, plan: SqlPlan, reason: str, row: int) -> SqlRows:
    """Nothing from `row` on, and nothing before it either."""
    nothing = np.zeros(len(images), np.bool_)
    made: list[Any] = [pa.nulls(len(images), _arrow(plan, f"c{at + 1}")) for at in range(len(plan.computed))]
    made = [physical(values) for values in made]
    return SqlRows(nothing, nothing, made, made, reason, row)


def _padded(images: Images, plan: SqlPlan, made: SqlRows, reason: str, row: int) -> SqlRows:
    """What was made of the rows before `row`, for all of them."""
    rest = stopped(images, plan, reason, row)
    left = len(images) - row

    def both(values: Sequence[Any], nothing: Sequence[Any]) -> list[Any]:
        return [pa.concat_arrays([one, none.slice(0, left)]) for one, none in zip(values, nothing, strict=True)]

    none = np.zeros(left, np.bool_)
    was, now = np.concatenate([made.was, none]), np.concatenate([made.now, none])
    return SqlRows(was, now, both(made.before, rest.before), both(made.after, rest.after), reason, row)


def read_error(directory: Path) -> str:
    """What was wrong with the log, if something was."""
    path = directory / ERROR
    if not path.exists():
        return ""
    with closing(open_private(path, "rb")) as file:
        return file.read().decode()
