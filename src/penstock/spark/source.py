"""`format("penstock")`: the data source that Spark plans, schedules and retries.

The planning methods run in one Python process beside the driver; `read` runs in the workers. An offset is
`{"position": "L:E", "generation": n}`: the position to read next (plan.py), and the replay generation.
The source yields one manifest row per range (task.py); the rows themselves never pass through the JVM.
Imports are late here, for the reason given in job.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import NotSupported, PenstockError
from penstock.spark.failure import PipelineFailure
from penstock.spark.job import Job
from penstock.spark.range_manifest import COLUMNS, freeze_once
from penstock.wire import Client

if TYPE_CHECKING:
    from penstock.log.position import Position
    from penstock.schema.view import SchemaView
    from penstock.spark.plan import PlannedRange, Planner

_GENERATION = 0  # grows once single dispatchers can be replayed, which is not built yet


@dataclass
class RangePartition(InputPartition):
    """A planned range on its way to a task. `pack` is the same bytes in most batches; `schemas` is JSON of what it lacks."""

    start: str
    first: str
    end: str
    pack: bytes
    schemas: str
    void: tuple[int, ...] = ()

    @classmethod
    def of(cls, planned: PlannedRange) -> RangePartition:
        schemas = json.dumps([[str(position), table.to_json()] for position, table in planned.schemas])
        return cls(str(planned.start), str(planned.first), str(planned.end), planned.pack, schemas, planned.void)

    def view(self) -> SchemaView:
        from penstock.log.position import Position
        from penstock.schema.model import TableSchema
        from penstock.schema.pack import PackedSchemas
        from penstock.schema.view import SchemaAt

        since = json.loads(self.schemas)
        return PackedSchemas(self.pack, [SchemaAt(Position.parse(p), TableSchema.from_json(t)) for p, t in since])


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return COLUMNS

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return PenstockStreamReader(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        error = NotSupported(
            'spark.read.format("penstock") is not in this version yet', hint="read the sink's own files for now"
        )
        raise PipelineFailure(error, "config")


def source_of(changefeed: str, base: type[PenstockSource] = PenstockSource) -> type[PenstockSource]:
    """The data source under a name that only this changefeed uses; registered again for each of its runs.

    Spark keeps one map of environment variables for each registered source and writes to it whenever it plans a batch.
    Two queries that share a source write to that map at the same time and can break it for good: every task of both
    queries then fails with `java.io.OptionalDataException`.
    """
    own = f"penstock-{changefeed}"
    return type("ChangefeedSource", (base,), {"name": classmethod(lambda cls: own)})


class PenstockStreamReader(DataSourceStreamReader):
    """Plans in the planning process, reads in the workers; only the job travels between them."""

    def __init__(self, options: Mapping[str, str]) -> None:
        try:
            self._job = Job.from_options(options)
        except PenstockError as error:
            raise PipelineFailure(error, "config") from error
        self._planner: Planner | None = None
        self._delivery: Client | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_job": self._job, "_planner": None, "_delivery": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return _offset(self._job.start_position)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` while delivery is suppressed or nothing new is complete.

        A full delivery may still ask for the rows that an open file waits for: the batch then ends with them.
        """
        freeze_once()
        if self._delivery is None:
            self._delivery = Client(Path(self._job.delivery_socket))
        try:
            pressure = self._delivery.call("pressure", changefeed=self._job.changefeed)
            if pressure["suppressed"]:
                return start
        except PenstockError as error:
            raise PipelineFailure(error, "sink") from error
        try:
            end = self._plan().end_of_batch(_position(start))
            if pressure["until"] is not None:
                from penstock.log.position import Position
                from penstock.spark.plan import following

                end = max(_position(start), min(end, following(Position.parse(pressure["until"]))))
            return _offset(end)
        except PenstockError as error:
            raise PipelineFailure(error, "source") from error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        try:
            ranges = self._plan().ranges(_position(start), _position(end))
        except PenstockError as error:
            raise PipelineFailure(error, "source") from error
        return [RangePartition.of(planned) for planned in ranges]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        from penstock.log.position import Position
        from penstock.spark.task import Range, run_range

        assert isinstance(partition, RangePartition)
        context = TaskContext.get()
        attempt = int(context.taskAttemptId()) if context is not None else 0
        start, first, end = (Position.parse(each) for each in (partition.start, partition.first, partition.end))
        taken = Range(start, first, end, partition.view(), partition.void)
        yield run_range(self._job, taken, attempt).to_row()

    def _plan(self) -> Planner:
        if self._planner is None:
            from penstock.spark.log_follower import LogFollower
            from penstock.spark.plan import Planner

            self._job.configure_cache()
            follower = LogFollower.open(
                self._job.log_directory, self._job.start_position, read_attempts_max=self._job.read_attempts_max
            )
            self._planner = Planner(follower.more, self._job.plan_settings, follower.in_force())
        return self._planner


def _offset(position: Position) -> dict[str, Any]:
    return {"position": str(position), "generation": _GENERATION}


def _position(offset: dict[str, Any]) -> Position:
    from penstock.log.position import Position

    return Position.parse(offset["position"])
