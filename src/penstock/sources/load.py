"""The rows that a source already holds when a log begins: what is loaded, how far that is, and what reads it.

A table is read in chunks, each after the last key of the one before; a large one in several ranges of its key, each of
which has chunks of its own. Nothing is locked and nothing is written at the source: a chunk only knows the position up to
which its SELECT must see everything (*low*, which the caller gives), and the one up to which it may have seen something
(`LoadedRows.high`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from penstock.errors import Corruption, Terminal
from penstock.schema.model import TableSchema
from penstock.sources.position import SourcePosition, file_number, files_between

if TYPE_CHECKING:
    import pyarrow as pa

Name = tuple[str, str]
"""(schema, table)"""

CHUNK_BYTES = 8 << 20  # of a chunk's values as the server sends them: what the size of the next chunk aims at
CHUNK_BYTES_MAX = 16 << 20  # a chunk ends after the row that reaches this


class TableMoved(Terminal):
    """The table is not, or not any more, as the log has it: a DDL lies between the two."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys beyond `after`, up to and with `until`, by the server's own order: the first values of a key, or all of them, as
    SQL literals. Empty: no bound. `after` grows with what is in the log; `done`: all of it is."""

    after: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    done: bool = False


WHOLE: tuple[KeyRange, ...] = (KeyRange(),)
ARRIVED = "came from a name that nobody followed"
"""The note of a load that waits for the definition of a table, and that no start has chosen."""


@dataclass(frozen=True, slots=True)
class TableLoad:
    """How far the load of one table is. `key`: the columns of its primary key in the order of the index, empty while the
    log does not know the table. `ranges`: parts of the key's values that are read beside each other, and have each of them once;
    empty before the first chunk. `order`: the types and collations by which the last keys are the last. `note`: why it ended
    early. `where`: a condition in SQL; only rows that meet it are loaded."""

    key: tuple[str, ...]
    ranges: tuple[KeyRange, ...] = ()
    rows: int = 0
    estimate: int = 0  # rows of the table, as the server guesses them at the start
    done: bool = False
    note: str = ""
    where: str = ""
    begun_ms: int = 0  # when it was asked for: the same for all that were asked for together
    backfill: bool = False  # asked for beside the stream: where it cannot go on it ends, and the flow does not
    joins: bool = False  # chosen after the log's start: nothing of the table counts before `key` is known
    order: tuple[str, ...] = ()

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    def anew(self) -> TableLoad:
        """The load, of which nothing is done."""
        return replace(self, ranges=(), order=(), done=False, note="")

    def with_chunk(self, number: int, rows: LoadedRows, count: int) -> TableLoad:
        """The load once `count` rows of a chunk of a range are in the log."""
        ranges = list(self.ranges)
        ranges[number] = replace(ranges[number], after=rows.after, done=rows.last)
        done = all(one.done for one in ranges)
        return replace(self, ranges=tuple(ranges), order=rows.order, rows=self.rows + count, done=done)

    @classmethod
    def from_json(cls, raw: str | bytes) -> TableLoad:
        try:
            value: dict[str, Any] = json.loads(raw)
            after = tuple(value.pop("after", ()))  # of a log of before tables were read in several ranges
            stored = value.pop("ranges", [{"after": after}] if after else [])
            ranges = tuple(
                KeyRange(tuple(one["after"]), tuple(one.get("until", ())), bool(one.get("done"))) for one in stored
            )
            lists = {name: tuple(value.get(name, ())) for name in ("key", "order")}
            return cls(**{**value, **lists, "ranges": ranges})
        except (ValueError, TypeError, KeyError) as error:
            raise Corruption(f"the stored progress of a load cannot be read: {error!r}") from error


@dataclass(frozen=True, slots=True)
class LoadedRows:
    """A chunk: a column for each of the table's, in the forms of schema/changes.py. `after`: its last key; `last`: no row of
    its range follows it. `high`: everything that the chunk may show is before this position, in the files of its server. `order`: as
    in `TableLoad`, when the chunk was read."""

    columns: list[pa.Array[Any]]
    after: tuple[str, ...]
    last: bool
    high: SourcePosition
    bytes: int
    order: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return len(self.columns[0]) if self.columns else 0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What can be loaded of the tables that were asked for, and why the others cannot be. `versions`: those of them that
    were not known, as they are at `position`."""

    loads: Mapping[Name, TableLoad]
    refused: Mapping[Name, str]
    versions: Mapping[Name, TableSchema]
    position: SourcePosition


class TableReader(Protocol):
    """Reads chunks over a connection of its own. For one thread; `close` may come from another."""

    def split(self, table: TableSchema, load: TableLoad, parts: int) -> tuple[KeyRange, ...]:
        """The table's keys in about `parts` ranges of about as many rows each, in fewer where it is not known how. Raises as
        `read` does."""
        ...

    def read(
        self, table: TableSchema, load: TableLoad, part: KeyRange, low: SourcePosition, rows_max: int
    ) -> LoadedRows:
        """The next rows of `part`, at most `rows_max`. They show everything that is before `low` in the binlog. Raises
        `TableMoved` where the table is not as `table` says, `Unavailable` where trying again may help."""
        ...

    def now(self) -> SourcePosition:
        """Where the server's binlog ends, by file and offset."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Loadable(Protocol):
    """A source that has tables of its own, beside its binlog."""

    def table_reader(self) -> TableReader: ...

    def wake(self) -> None:
        """Lets the stream give an empty chunk now: something else has come that its reader waits for. From any thread."""
        ...

    def plan_loads(
        self, wanted: Callable[[str, str], bool], known: Callable[[str, str], TableSchema | None], where: str = ""
    ) -> LoadPlan:
        """The loads of the source's tables that are `wanted`, nothing of them done. `known`: the versions in force. Raises
        `BadInput` where `where` is no condition for one of them, `SourceError` where the server cannot be loaded from."""
        ...


def has_passed(here: SourcePosition, high: SourcePosition) -> bool:
    """Whether a stream that is at `here` has given everything before `high`. Both by file and offset: a server sends its
    files in order, also where it was asked by GTID."""
    if here.source != high.source or files_between(high.file, here.file) is None:
        return False
    there, at = file_number(high.file), file_number(here.file)
    return here.pos >= high.pos if at == there else at > there
