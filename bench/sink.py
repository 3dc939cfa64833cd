"""The storage sink. Its parts are modules of their own; each has `measure(directory) -> Iterator[Result]`."""

from __future__ import annotations

from collections.abc import Iterator

from bench import sink_encode, sink_spool, sink_upload
from bench.pipeline import scratch
from bench.result import Result


def measure() -> Iterator[Result]:
    with scratch() as directory:
        yield from sink_encode.measure(directory)
        yield from sink_spool.measure(directory)
        yield from sink_upload.measure(directory)
