"""Decoded changes → the bytes that users read. docs/types.md says what each MySQL type becomes.

| module | job |
|---|---|
| `format.py`, `formats.py` | the `FileFormat` protocol; every format by its name |
| `settings.py` | the options of each format, as the configuration has them |
| `joining.py` | payloads → files, for delivery, which loads no kernels |
| `images.py` | which image of a row a file shows; updates as a delete and an insert |
| `text.py`, `names.py`, `calendar.py` | values as text, names and days: shared by all formats |
| `lines.py` | lines from constant fragments and the text of columns |
| `kernels/` | the inner loops |
| `canal_json/`, `csv/`, `debezium_json/`, `parquet/` | the formats; `encoder.py` has the `FileFormat` of each |
| `change_lines/` | the JSON lines of `penstock binlog decode` |

`FORMATS`, `open_format` and all that encodes is imported when it is first asked for: reading a configuration needs the
options alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.encode.format import Assembler, FileFormat
from penstock.encode.joining import open_assembler

if TYPE_CHECKING:
    from penstock.encode.formats import FORMATS, open_format

__all__ = ["FORMATS", "Assembler", "FileFormat", "open_assembler", "open_format"]


def __getattr__(name: str) -> Any:
    if name not in ("FORMATS", "open_format"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.encode import formats

    return getattr(formats, name)
