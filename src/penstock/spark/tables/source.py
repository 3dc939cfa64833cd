"""`format("penstock")`: the classes that Spark calls. Planning methods run in processes beside the driver, `read` in the
workers; what is decided in one travels to the others as plain data (reading.py).

Only light modules are imported early: Spark imports this one wherever it looks for data sources.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.errors import BadInput, NotSupported

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.tables.reading import Piece, Resolved
    from penstock.spark.tables.streams.opening import TableStream

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:  # of a pyspark whose Python streams do not know that trigger

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass


@dataclass
class TablePartition(InputPartition):
    """What a task reads."""

    piece: Piece


class PenstockTables(DataSource):
    """The data source `penstock`: docs/spark.md."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._resolved: Resolved | None = None  # travels with this object once Spark has asked for the columns

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        return _spark_schema(self._resolve())

    def reader(self, schema: StructType) -> DataSourceReader:
        from penstock.spark.tables.reading import check_batch

        resolved = self._resolve(schema)
        check_batch(resolved)
        return TableReader(resolved)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from penstock.spark.tables.reading import check_stream

        if "start" not in inspect.signature(DataSourceStreamReader.latestOffset).parameters:
            raise NotSupported(
                f'streams of format("penstock") need pyspark 4.2 or newer, and this is {pyspark.__version__}: it cannot '
                "bound the batches of a Python source",
                hint="spark.read works with this version",
            )
        resolved = self._resolve(schema)
        check_stream(resolved)
        return TableStreamReader(resolved)

    def _resolve(self, declared: StructType | None = None) -> Resolved:
        if self._resolved is None:
            from penstock.spark.tables.options import Options
            from penstock.spark.tables.reading import resolve

            self._resolved = resolve(Options.parse(dict(self.options)))
        if declared is not None and _spark_schema(self._resolved).jsonValue() != declared.jsonValue():
            raise BadInput(
                'format("penstock") has the columns of its table, and .schema(…) names others',
                hint="leave .schema(…) out, and select or cast what you need",
            )
        return self._resolved


class TableReader(DataSourceReader):
    """A batch read."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved

    def partitions(self) -> Sequence[InputPartition]:
        from penstock.spark.tables.reading import Piece, plan

        # One task at least: without any, Spark makes one of its own that we could not read.
        return [TablePartition(piece) for piece in plan(self._resolved) or [Piece()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._resolved, partition)


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. Its offsets are those of streams/."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._stream: TableStream | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_resolved": self._resolved, "_stream": None}  # what travels to the workers

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self._open().initial()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        return self._open().end_of_batch(start)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return self._open().latest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._open().stop_at_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [TablePartition(piece) for piece in self._open().pieces(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._resolved, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._open().ack(end)

    def stop(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _open(self) -> TableStream:
        if self._stream is None:
            from penstock.spark.tables.streams.opening import open_stream

            self._stream = open_stream(self._resolved)
        return self._stream


def _read(resolved: Resolved, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from penstock.spark.tables.reading import batches

    assert isinstance(partition, TablePartition)
    return batches(resolved, partition.piece)


def _spark_schema(resolved: Resolved) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(resolved.arrow_schema(), prefer_timestamp_ntz=True)
