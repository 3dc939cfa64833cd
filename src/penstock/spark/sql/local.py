"""`sql:` in a process that has no batches: what `penstock verify` holds the sink against.

Spark starts with the first statement, in a directory of its own that is gone with it, and each batch of rows is a query.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.files.private import make_private_directory, open_private, remove_private
from penstock.rules.images import Images
from penstock.rules.sql.rows import Selection, Sql, SqlPlan, SqlRows, relation_rows
from penstock.schema.model import Column
from penstock.spark.sql.query import TableQuery
from penstock.spark.sql.session import SparkSql
from penstock.spark.sql.worker import BATCH_ROWS, ResultReader, rows_of_result


@dataclass(frozen=True)
class FileRows:
    """The rows of the relation, of a file; at most so many."""

    path: str
    images_max: int | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            with open_private(Path(self.path), "rb") as opened:
                file: Any = opened
                rows = pa.ipc.open_stream(file).read_all()
            count = rows.num_rows if self.images_max is None else min(rows.num_rows, self.images_max)
            yield from rows.slice(0, count).to_batches(max_chunksize=BATCH_ROWS)


class LocalSql(Sql):
    """`parent`: where its own directory is made, for this user alone. `spark`: one that runs already. `close` ends what was
    started here. Used by one thread."""

    def __init__(self, parent: Path, spark: SparkSql | None = None) -> None:
        self._directory = parent / f"sql-{os.getpid()}"
        self._spark = spark
        self._launch: Any = None
        self._queries = 0

    def plan(self, statement: str, columns: Sequence[Column]) -> SqlPlan:
        return self._started().plan(statement, columns)

    def rows(self, table: str, selection: Selection, images: Images) -> SqlRows:
        self._queries += 1
        directory = self._directory / "rows" / str(self._queries)
        make_private_directory(directory)
        given = directory / "given.arrow"
        relation = relation_rows(images, selection.columns, selection.plan, 0)
        with open_private(given, "wb") as opened:
            file: Any = opened
            with pa.ipc.new_stream(file, relation.schema) as writer:
                writer.write_table(relation)

        def make(_parts: Sequence[int], images_max: int | None) -> FileRows:
            return FileRows(str(given), images_max)

        reader: ResultReader | None = None
        try:
            (made,) = TableQuery(self._started(), selection, make, directory).run(1)
            reader = ResultReader(made.path)
            return rows_of_result(images, selection.plan, reader, 0, (made.reason, made.image))
        finally:
            if reader is not None:
                reader.close()
            remove_private(directory)

    def close(self) -> None:
        if self._launch is not None:
            # With stack traces py4j tells that a JVM which was ended does not answer.
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
            self._launch.end()
            self._launch = self._spark = None
        remove_private(self._directory)

    def _forget_the_dead(self) -> None:
        """Removes what processes left that were killed."""
        for found in self._directory.parent.glob("sql-*"):
            pid = found.name.removeprefix("sql-")
            if pid.isdigit() and not Path(f"/proc/{pid}").exists():
                remove_private(found)

    def _started(self) -> SparkSql:
        if self._spark is None:
            from penstock.spark.jvm.launch import Launch

            self._forget_the_dead()
            make_private_directory(self._directory)
            self._launch = Launch(self._directory)
            context: Any = self._launch.context()
            # pyspark's server of accumulators prints a stack trace once its JVM is gone.
            context._accumulatorServer.handle_error = lambda _request, _client: None
            self._spark = SparkSql(context)
        return self._spark
