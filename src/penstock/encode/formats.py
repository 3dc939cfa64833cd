"""Every format by its name in the configuration."""

from __future__ import annotations

from typing import Any

from penstock.encode.canal_json.encoder import CanalJson
from penstock.encode.csv.encoder import Csv
from penstock.encode.debezium_json.encoder import DebeziumJson
from penstock.encode.format import FileFormat
from penstock.encode.joining import options_of
from penstock.encode.parquet.encoder import Parquet
from penstock.encode.settings import CanalJsonOptions, CsvOptions, DebeziumJsonOptions, FormatOptions, ParquetOptions

FORMATS: dict[str, FileFormat] = {made.name: made for made in (CanalJson(), Csv(), DebeziumJson(), Parquet())}
"""Each with its default options."""


def open_format(format_name: str, options: FormatOptions | dict[str, Any] | None = None) -> FileFormat:
    """A format with these options. Raises `BadInput` for a name that is unknown, or options that it does not have."""
    match options_of(format_name, options):
        case CanalJsonOptions() as given:
            return CanalJson(given)
        case CsvOptions() as given:
            return Csv(given)
        case DebeziumJsonOptions() as given:
            return DebeziumJson(given)
        case ParquetOptions() as given:
            return Parquet(given)
    raise AssertionError(format_name)
