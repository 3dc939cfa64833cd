"""`format("penstock")`: tables and changes for users' own queries in Spark, from a sink's prefix or from a log.

| file | what it does |
|---|---|
| `options.py` | the options, checked |
| `history.py` | versions of tables under their names; which of them make up the table of now |
| `sink.py` | a sink's prefix: its format, checkpoint, versions and files |
| `text_values.py`, `rows.py` | values of text formats, typed; rows of changes; rows of one version as those of another |
| `kernels.py`, `kept_values.py`, `current.py` | changes applied to a table; whether its values survive a statement |
| `json_rows.py` | all changes in one shape |
| `log.py` | ranges of a log as rows |
| `reading.py` | what a read gives: decided, planned, read |
| `streams/` | streams of a log or of a sink's files: bounded batches, offsets, a cursor |
| `source.py` | the classes that Spark calls |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput, NotSupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Makes `format("penstock")` known to this session. Not needed where Spark finds it by itself: docs/spark.md."""
    source: Any = data_source()
    spark.dataSource.register(source)


def data_source() -> type:
    """The class that Spark takes. Raises `NotSupported` where pyspark has no Python data sources."""
    try:
        import pyspark
    except ImportError as error:
        raise BadInput("pyspark is not installed", hint="pip install 'penstock[spark]'") from error
    try:
        import pyspark.sql.datasource
    except ImportError as error:
        raise NotSupported(
            f'format("penstock") needs pyspark 4.0 or newer, and this is {pyspark.__version__}',
            hint="changefeeds run without it; Spark reads a Parquet sink without it, too",
        ) from error
    from penstock.spark.tables.source import PenstockTables

    return PenstockTables
