"""Spark as Penstock uses it: one context of this process, and jobs of independent tasks. A SQL session is made only where a
rule has `sql:`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.spark.sql.session import SparkSql

T = TypeVar("T")
U = TypeVar("U")


class EngineLost(Exception):
    """The JVM has ended, or its context; only a new driver process can start another."""


class Engine:
    """Thread-safe: each calling thread has its own in the JVM."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._sql: SparkSql | None = None
        self._sql_lock = threading.Lock()

    @property
    def version(self) -> str:
        return str(self._context.version)

    @property
    def parallelism(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, group: str, items: Sequence[T], task: Callable[[Iterable[T]], Iterable[U]]) -> list[U]:
        """One job with a task for each item; what the tasks yield, in the order of the items. Spark repeats a task that fails,
        by the master's setting. `cancel` of the group ends the job."""
        self.in_group(group)
        return self._context.parallelize(items, len(items)).mapPartitions(task).collect()

    def in_group(self, group: str) -> None:
        """From here on, jobs of this thread are of the group."""
        self._context.setJobGroup(group, group)

    def sql(self) -> SparkSql:
        """The SQL session, made for the first one who asks."""
        from penstock.spark.sql.session import SparkSql

        with self._sql_lock:
            if self._sql is None:
                self._sql = SparkSql(self._context)
            return self._sql

    def cancel(self, group: str) -> None:
        with contextlib.suppress(Exception):  # a JVM that is gone runs no job
            self._context.cancelJobGroup(group)

    def check(self) -> None:
        """Raises `EngineLost` if the JVM does not answer any more, or has given up."""
        try:
            stopped = bool(self._context._jsc.sc().isStopped())
        except Exception as error:
            raise EngineLost(str(error)) from error
        if stopped:
            raise EngineLost("its context has stopped")

    def stop(self) -> None:
        self._context.stop()
