"""The process that Spark's Python workers are forked from: `pyspark.daemon` with the slow imports done once.

numba, pandas (pyarrow looks for it), pyspark itself and our own rooms take seconds of a core, in every worker, and again
whenever an idle worker came back. pyspark imports late because libraries may start threads, which do not survive a fork;
of ours only jemalloc's background thread does, and jemalloc resets itself in the child. What is loaded is frozen,
because Spark's worker collects garbage after every task, and would look at all of it each time.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own threads would not survive the fork
    if sys.argv[1:2] == ["pyspark.worker"]:
        import pandas  # type: ignore[import-untyped]  # noqa: F401
        import pyspark.worker  # noqa: F401

        import penstock.spark.task  # noqa: F401
        from penstock.binlog.warm import warm_kernels

        warm_kernels()
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
