"""What the workers' parent does before it forks."""

from __future__ import annotations

import subprocess
import sys

from tests.support.waiting import LIMIT_SECONDS

_PROGRAM = """
import sys
from penstock.spark.daemon import without_pandas
without_pandas()
import pyarrow as pa
import pyspark.worker, penstock.spark.task
from penstock.binlog.warm import warm_kernels
warm_kernels()
pa.array([1, None]), pa.table({"a": ["x"]})
print("pandas" in sys.modules)
print(pa.table({"a": [1]}).to_pandas()["a"].sum())  # of one who wants it
"""


def test_workers_do_not_load_pandas_and_who_wants_it_has_it() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, timeout=LIMIT_SECONDS, check=True)
    assert done.stdout.split() == [b"False", b"1"]


_AS_ON_A_CLUSTER = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (4096, resource.getrlimit(resource.RLIMIT_CORE)[1]))
os.umask(0o022)
import pyspark.daemon
pyspark.daemon.manager = lambda: print(resource.getrlimit(resource.RLIMIT_CORE)[0], oct(os.umask(0)))
sys.argv = ["daemon", "something.else"]
from penstock.spark import daemon
daemon.main()
"""


def test_workers_of_a_cluster_leave_no_memory_on_a_disk_and_show_nobody_their_files() -> None:
    """Their parent is a child of the cluster's own processes, which have other limits than `penstock run`."""
    done = subprocess.run(
        [sys.executable, "-c", _AS_ON_A_CLUSTER], capture_output=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.stdout.split() == [b"0", b"0o77"], done.stderr
