"""The process that Spark's Python workers are forked from: `pyspark.daemon` with the slow imports done once.

Importing numba takes a second of a core, in every worker, and again whenever an idle worker came back. Only modules that
start no threads are loaded before the fork (pyarrow and pandas start some). What is loaded is frozen, because Spark's
worker collects garbage after every task, and would look at all of it each time.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own threads would not survive the fork
    if sys.argv[1:2] == ["pyspark.worker"]:
        import numba  # noqa: F401
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
