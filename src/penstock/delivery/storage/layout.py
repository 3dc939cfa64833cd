"""Where files lie at the sink (docs/formats/manifest.md). Paths are relative to the prefix, with `/`.

| | text formats (TiCDC's layout) | parquet |
|---|---|---|
| data | `<schema>/<table>/<version>/<date>/CDC<20 digits>.json`, `.csv` | `<schema>/<table>/version=<v>/date=<d>/CDC<6 digits>.parquet` |
| index | `<data directory>/meta/CDC.index` | `<data directory>/_meta/CDC.index` |
| schema | `<schema>/<table>/meta/schema_….json` | `<schema>/<table>/_meta/schema_….json` |
| schema of a database | `<schema>/meta/schema_….json` | `<schema>/_meta/schema_….json` |

Numbers start at 1 in each date directory. Dates are the UTC day of commit_ts, never of the wall clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.commit_ts import milliseconds_of
from penstock.errors import BadInput, Corruption, NotSupported

METADATA_PATH = "metadata"
CONTROL_DIRECTORY = "_penstock"
OWNER_PATH = f"{CONTROL_DIRECTORY}/owner.json"
PROGRESS_PATH = f"{CONTROL_DIRECTORY}/progress.json"
LOCK_PATH = f"{CONTROL_DIRECTORY}/lock"
DEAD_LETTERS = f"{CONTROL_DIRECTORY}/dead"

_NAME_BYTES_MAX = 255  # of one path component, on every file system and object store that we know
_RESERVED = {METADATA_PATH, CONTROL_DIRECTORY}
_DATA_FILE = re.compile(r"CDC(\d+)\.[a-z]+")


def date_of(commit_ts: int) -> str:
    """The UTC day of a commit_ts: `2026-11-16`."""
    return datetime.fromtimestamp(milliseconds_of(commit_ts) / 1000, UTC).strftime("%Y-%m-%d")


def encode_name(name: str, *, hide_safe: bool = False) -> str:
    """A schema or table name as one path component; names in ordinary characters stay as they are.

    Percent-encodes separators, control characters and `%` itself, so that two names never become the same component and
    none leads out of the prefix. With `hide_safe` a leading `_` is encoded too, because Spark takes such directories
    for hidden ones, and so is `=`.
    """
    if not name:
        raise BadInput("an empty name cannot be a directory at the sink")
    text = "".join(_percent(c) if c in '/\\%:*?"<>|' or ord(c) < 0x20 or ord(c) == 0x7F else c for c in name)
    if hide_safe:
        text = "".join(_percent(c) if c == "=" else c for c in text)
    if text in _RESERVED or text.startswith(".") or (hide_safe and text.startswith("_")):
        text = _percent(text[0]) + text[1:]
    if len(text.encode()) > _NAME_BYTES_MAX:
        raise BadInput(f"the name {name!r} is too long for a directory at the sink ({_NAME_BYTES_MAX} bytes)")
    return text


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def file_number(path: str) -> int:
    """The number in a data file's name (a path, or the content of an index)."""
    match = _DATA_FILE.fullmatch(path.rpartition("/")[2].strip("\n"))
    if match is None:
        raise Corruption(f"{path!r} is not the name of a data file", hint="an index or a recorded path is damaged")
    return int(match[1])


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one format's files. `hide_safe`: directories must not look hidden to Spark."""

    extension: str
    digits: int
    version_prefix: str
    date_prefix: str
    meta: str
    hide_safe: bool

    def table_directory(self, schema: str, table: str) -> str:
        """The directory of a table, or of a database where `table` is empty."""
        first = encode_name(schema, hide_safe=self.hide_safe)
        return f"{first}/{encode_name(table, hide_safe=self.hide_safe)}" if table else first

    def data_directory(self, schema: str, table: str, version: int, date: str) -> str:
        if not table:
            raise BadInput(f"rows of {schema!r} name no table")
        if date != encode_name(date) or version < 0:
            raise BadInput(f"{version}/{date!r} is not a directory of {schema}.{table}")
        return f"{self.table_directory(schema, table)}/{self.version_prefix}{version}/{self.date_prefix}{date}"

    def data_path(self, directory: str, number: int) -> str:
        return f"{directory}/CDC{number:0{self.digits}d}{self.extension}"

    def index_path(self, directory: str) -> str:
        return f"{directory}/{self.meta}/CDC.index"

    def schema_directory(self, schema: str, table: str) -> str:
        return f"{self.table_directory(schema, table)}/{self.meta}"


_LAYOUTS = {
    "canal-json": Layout(".json", 20, "", "", "meta", False),
    "csv": Layout(".csv", 20, "", "", "meta", False),
    "debezium-json": Layout(".json", 20, "", "", "meta", False),
    "parquet": Layout(".parquet", 6, "version=", "date=", "_meta", True),
}


def layout_of(format_name: str) -> Layout:
    """The layout of a format, by its name in the configuration."""
    if format_name not in _LAYOUTS:
        raise NotSupported(
            f"the format {format_name!r} has no layout yet", hint=f"one of: {', '.join(sorted(_LAYOUTS))}"
        )
    return _LAYOUTS[format_name]
