"""The process that Spark's Python workers are forked from: `pyspark.daemon` with the slow imports done once.

Importing numba, pyspark itself and our own packages takes seconds of a core, in every worker and again whenever Spark
replaces an idle one. pyspark.daemon imports nothing early because a library may start threads, which do not survive a
fork. Of the libraries here only jemalloc starts one, and jemalloc resets itself in the child. The loaded objects are
frozen, because Spark's worker collects garbage after every task and would visit all of them each time.
"""

from __future__ import annotations

import gc
import os
import sys


class _NoPandas:
    """Finds no pandas."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ImportError(name)


def main() -> None:
    from penstock.files.private import no_core_dumps, private_umask
    from penstock.spark.jvm.workers_ahead import AHEAD, hand_over, wait_to_be_taken

    # On a cluster this is a child of the cluster's processes and not of ours; the tasks have the key of the masks, and rows.
    private_umask()
    no_core_dumps()
    ahead = sys.argv[2:3] == [AHEAD]
    if ahead:
        from penstock.process import end_with_parent

        end_with_parent(int(sys.argv[4]))
    elif hand_over():
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own threads would not survive the fork
    gc.disable()  # until all is there: what imports make stays
    if sys.argv[1:2] == ["pyspark.worker"]:
        without_pandas()
        import pyspark.worker  # noqa: F401

        import penstock.spark.task  # noqa: F401
        from penstock.binlog.warm import warm_kernels

        warm_kernels()
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()
    gc.enable()
    if ahead:
        wait_to_be_taken(int(sys.argv[3]))
    manager()


def without_pandas() -> None:
    """pyarrow looks once for pandas when it makes an array, and imports it, for more than a second, to ask whether a value is
    of pandas. From here on it takes for granted that none is; whoever imports pandas himself can use both as ever."""
    import pyarrow as pa

    finders: list[object] = sys.meta_path  # type: ignore[assignment]
    finders.insert(0, _NoPandas)
    try:
        pa.array([0])
    finally:
        finders.remove(_NoPandas)


if __name__ == "__main__":
    main()
