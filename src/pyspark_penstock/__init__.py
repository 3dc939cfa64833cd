"""Spark looks for data sources in modules whose name begins with `pyspark_`, and registers their `DefaultSource`: so
`format("penstock")` works in every session of an environment that has this package."""

from penstock.spark.tables.source import PenstockTables as DefaultSource

__all__ = ["DefaultSource"]
