"""Ends the JVM of pyspark in this process: a session that is made later must start one with settings of its own."""

from __future__ import annotations

from typing import Any


def end_java() -> None:
    """For a session that was stopped. Without a JVM it does nothing."""
    from pyspark import SparkContext

    context: Any = SparkContext
    gateway = context._gateway
    if gateway is None:
        return
    context._gateway = context._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # what it waits for
    gateway.proc.wait()
