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
