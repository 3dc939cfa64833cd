"""Decoded changes → the bytes that users read. docs/types.md says what each MySQL type becomes.

| module | job |
|---|---|
| `format.py` | the `FileFormat` protocol; which image of a row a file shows |
| `text.py`, `text_kernels.py` | values as text: shared by all formats |
| `canal_json/`, `parquet/` | the formats; `encoder.py` has the `FileFormat` of each |
"""

from __future__ import annotations

from penstock.encode.canal_json.encoder import CanalJson
from penstock.encode.format import FileFormat
from penstock.encode.parquet.encoder import Parquet

FORMATS: dict[str, FileFormat] = {format.name: format for format in (CanalJson(), Parquet())}

__all__ = ["FORMATS", "FileFormat"]
