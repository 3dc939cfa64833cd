"""Spark as Penstock uses it: one context of this process, and jobs of independent tasks. No SQL session is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")
U = TypeVar("U")


class EngineLost(Exception):
    """The JVM has ended, or its context; only a new driver process can start another."""


class Engine:
    """Thread-safe: each calling thread has its own in the JVM."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context

    @property
    def version(self) -> str:
        return str(self._context.version)

    @property
    def parallelism(self) -> int:
        return int(self._context.defaultParallelism)

    def run(self, group: str, items: Sequence[T], task: Callable[[Iterable[T]], Iterable[U]]) -> list[U]:
        """One job with a task for each item; what the tasks yield, in the order of the items. Spark repeats a task that fails,
        by the master's setting. `cancel` of the group ends the job."""
        self._context.setJobGroup(group, group)
        return self._context.parallelize(items, len(items)).mapPartitions(task).collect()

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
