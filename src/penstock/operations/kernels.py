"""Compiles the inner loops of a flow, once for each installation, so that no run waits for it: `make setup` does so.

    python -m penstock.operations.kernels

A small shop goes the whole way but for Spark, from its binlog through capture, log and decoder into each format and back.
What only a server's rows or a rule need (a load, masks) is compiled by the first run that meets it.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from penstock.binlog.warm import warm_kernels
from penstock.capture.loop import Capture
from penstock.encode import FORMATS
from penstock.entries.stores import SCHEMA_HISTORY
from penstock.files.memory import MemoryFiles
from penstock.kernels.compiled import note_compiled
from penstock.log import Log, LogReader
from penstock.metadata import MemoryMetadata
from penstock.operations.verify.log_replay import LogReplay
from penstock.sources.demo.source import DemoSource
from penstock.sources.mysql.packets import unpack
from penstock.sources.settings import DemoSettings
from penstock.state import BucketState

_CHANGES = 5_000  # with DDL, and updates and deletes of every table


def compile_kernels() -> int:
    """Compiles what is not compiled yet, which takes about half a minute the first time. Returns the rows that went
    the whole way."""
    warm_kernels()
    unpack(np.zeros(8, np.uint8), 0, np.zeros(8, np.uint8))
    rows = 0
    at, files, metadata = Path("/log"), MemoryFiles(), MemoryMetadata()
    with closing(Log.open(at, files=files, metadata=metadata)) as log:
        Capture(log, DemoSource(DemoSettings(type="demo", changes=_CHANGES))).run(until_now=True)
    with closing(Log.open(at, files=files, metadata=metadata)) as log, BucketState.open(log) as state:
        state.checkpoint()
        list(state.store(SCHEMA_HISTORY).items())
    with closing(LogReader.open(at, files, metadata)) as reader:
        for batch, _ in LogReplay(reader, reader.end()).changes():
            rows += len(batch)
            for each in FORMATS.values():
                each.rows(each.assemble([each.encode(batch)]))
    note_compiled()
    return rows


if __name__ == "__main__":
    compile_kernels()
