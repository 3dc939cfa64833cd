"""The start: from `penstock run` to its first file, beside a bare PySpark script in the same environment.

The script makes a SparkSession, runs one Python job and ends. Rounds of the two (and of Penstock with a class archive)
follow one another, and each figure is the median of its rounds: a ratio says more than seconds on a machine that does
other things too. Kernels are compiled by a first run that does not count, and the archive is made before the rounds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import yaml

from bench.result import Result

ROWS = 20_000
ROUNDS = int(os.environ.get("BENCH_START_ROUNDS", "3"))
PEER = "a bare PySpark script"
_TIMEOUT_SECONDS = 300.0
_LOOK_SECONDS = 0.01
_SCRIPT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.parallelize([1, 2], 2).map(lambda value: value + 1).collect() == [2, 3]
spark.stop()
"""


def measure(directory: Path) -> Iterator[Result]:
    without = {**os.environ, "PENSTOCK_CLASS_ARCHIVE": "off"}
    cached = {**os.environ, "PENSTOCK_CLASS_ARCHIVE": ""}
    first_file(directory / "first", without)
    subprocess.run(
        [sys.executable, "-m", "penstock.spark.jvm.class_archive"],
        env=cached,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT_SECONDS,
    )
    bare, plain, archived = [], [], []
    for number in range(ROUNDS):
        bare.append(bare_script(directory))
        plain.append(first_file(directory / f"plain-{number}", without))
        archived.append(first_file(directory / f"archive-{number}", cached))
    yield Result("start, to the first file", median(plain), "s", PEER, median(bare), 1.0, "ratio-most")
    yield Result("start with a class archive", median(archived), "s", PEER, median(bare), 0.7, "ratio-most")


def bare_script(directory: Path) -> float:
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        cwd=directory,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_TIMEOUT_SECONDS,
    )
    return time.monotonic() - started


def first_file(directory: Path, environment: dict[str, str]) -> float:
    """Seconds from the command to the first data file at the sink."""
    directory.mkdir(parents=True)
    config = directory / "penstock.yaml"
    sink = {"url": (directory / "out").as_uri(), "format": "parquet", "flush": {"every": "1s"}}
    config.write_text(
        yaml.safe_dump(
            {
                "version": 1,
                "state_dir": str(directory / "state"),
                "source": {"type": "demo", "changes": ROWS},
                "sinks": {"out": sink},
            }
        )
    )
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "run", "--once", "--json", "-c", str(config)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not any((directory / "out").glob("*/*/*/*/CDC*.parquet")):
            if process.poll() is not None or time.monotonic() - started > _TIMEOUT_SECONDS:
                raise RuntimeError(f"no file came; penstock run: {process.poll()}")
            time.sleep(_LOOK_SECONDS)
        return time.monotonic() - started
    finally:
        process.send_signal(signal.SIGKILL)  # its children end with it
        process.wait()
        time.sleep(1.0)  # so that the next figure does not pay for their end
        shutil.rmtree(directory, ignore_errors=True)
