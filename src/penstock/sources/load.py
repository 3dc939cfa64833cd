"""The rows that a source already holds when a log begins: what is loaded, how far that is, and what reads it.

A table is read in chunks, each after the last key of the one before. Nothing is locked and nothing is written at the
source: a chunk only knows the position up to which its SELECT must see everything (*low*, which the caller gives), and
the one up to which it may have seen something (`LoadedRows.high`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstock.errors import Corruption, Terminal
from penstock.schema.model import TableSchema
from penstock.sources.position import SourcePosition, file_number, files_between

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 4 << 20  # of a chunk's values as the server sends them: what the size of the next chunk aims at
CHUNK_BYTES_MAX = 16 << 20  # a chunk ends after the row that reaches this


class TableMoved(Terminal):
    """The table is not, or not any more, as the log has it: a DDL lies between the two."""


@dataclass(frozen=True, slots=True)
class TableLoad:
    """How far the load of one table is. `key`: the columns of its primary key in the order of the index; `after`: the last
    key in the log, as SQL literals; empty before the first chunk. `note`: why it ended early."""

    key: tuple[str, ...]
    after: tuple[str, ...] = ()
    rows: int = 0
    estimate: int = 0  # rows of the table, as the server guesses them at the start
    done: bool = False
    note: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, raw: str | bytes) -> TableLoad:
        try:
            value: dict[str, Any] = json.loads(raw)
            return cls(**{**value, "key": tuple(value["key"]), "after": tuple(value["after"])})
        except (ValueError, TypeError, KeyError) as error:
            raise Corruption(f"the stored progress of a load cannot be read: {error!r}") from error


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """A chunk: a column for each of the table's, in the forms of schema/changes.py. `after`: its last key; `last`: no row
    follows it. `high`: everything that the chunk may show is before this position, in the files of its server."""

    columns: list[pa.Array[Any]]
    after: tuple[str, ...]
    last: bool
    high: SourcePosition
    bytes: int

    @property
    def count(self) -> int:
        return len(self.columns[0]) if self.columns else 0


class TableReader(Protocol):
    """Reads chunks over a connection of its own. For one thread; `close` may come from another."""

    def read(self, table: TableSchema, load: TableLoad, low: SourcePosition, rows_max: int) -> LoadedRows:
        """The next rows after `load.after`, at most `rows_max`. They show everything that is before `low` in the binlog.
        Raises `TableMoved` where the table is not as `table` says, `Unavailable` where trying again may help."""
        ...

    def now(self) -> SourcePosition:
        """Where the server's binlog ends, by file and offset."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Loadable(Protocol):
    """A source that has tables of its own, beside its binlog."""

    def table_reader(self) -> TableReader: ...


def has_passed(here: SourcePosition, high: SourcePosition) -> bool:
    """Whether a stream that is at `here` has given everything before `high`. Both by file and offset: a server sends its
    files in order, also where it was asked by GTID."""
    if here.source != high.source or files_between(high.file, here.file) is None:
        return False
    there, at = file_number(high.file), file_number(here.file)
    return here.pos >= high.pos if at == there else at > there
