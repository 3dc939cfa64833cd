"""Decoded changes → the bytes that users read. docs/types.md says what each MySQL type becomes."""

from __future__ import annotations

from penstock.encode.canal_json.encoder import CanalJson
from penstock.encode.format import FileFormat
from penstock.encode.parquet.encoder import Parquet

FORMATS: dict[str, FileFormat] = {format.name: format for format in (CanalJson(), Parquet())}

__all__ = ["FORMATS", "FileFormat"]
