"""`penstock binlog stats`: what is in binlog files, in figures. Rows are counted, their values are passed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.binlog.errors import type_name
from penstock.binlog.events import split_events
from penstock.binlog.types import OP_DELETE, OP_INSERT, OP_UPDATE, EventType
from penstock.entries.decode import EntryGroup, GroupRows
from penstock.entries.format import Part, gtid_text
from penstock.operations.binlog.given_files import GivenFiles
from penstock.operations.binlog.reading import FileReader, Seen
from penstock.sources.source import Chunk

LARGEST = 10

_OP_OF_TYPE = np.zeros(256, np.uint8)
for _kinds, _op in (
    ((EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS_V2), OP_INSERT),
    ((EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS_V2, EventType.PARTIAL_UPDATE_ROWS), OP_UPDATE),
    ((EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS_V2), OP_DELETE),
):
    _OP_OF_TYPE[list(_kinds)] = _op


@dataclass(slots=True)
class TableFigures:
    """Of one table: rows by what was done to them, row events, and the bytes of these events, headers included."""

    schema: str
    table: str
    insert: int = 0
    update: int = 0
    delete: int = 0
    events: int = 0
    bytes: int = 0

    @property
    def rows(self) -> int:
        return self.insert + self.update + self.delete


@dataclass(slots=True)
class TransactionFigures:
    """Of one transaction: bytes and number of the events that carry it."""

    position: str
    gtid: str
    bytes: int = 0
    events: int = 0
    rows: int = 0


@dataclass(slots=True)
class Stats:
    """`events`: by type, of everything in the files. All other figures are about what was committed."""

    files: int = 0
    bytes: int = 0
    events: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    committed: int = 0
    ddl: int = 0
    statements: int = 0
    tables: dict[tuple[str, str], TableFigures] = field(default_factory=dict)
    largest: list[TransactionFigures] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        tables = sorted(self.tables.values(), key=lambda one: -one.bytes)
        return {
            "files": self.files,
            "bytes": self.bytes,
            "events": dict(self.events.most_common()),
            "transactions": {"committed": self.committed, **{str(k): n for k, n in sorted(self.endings.items())}},
            "ddl": self.ddl,
            "statements": self.statements,
            "rows": sum(one.rows for one in tables),
            "tables": [
                {
                    "schema": one.schema,
                    "table": one.table,
                    "rows": one.rows,
                    "insert": one.insert,
                    "update": one.update,
                    "delete": one.delete,
                    "events": one.events,
                    "bytes": one.bytes,
                }
                for one in tables
            ],
            "largest_transactions": [
                {
                    "position": one.position,
                    "gtid": one.gtid or None,
                    "bytes": one.bytes,
                    "events": one.events,
                    "rows": one.rows,
                }
                for one in self.largest
            ],
        }


class StatsReader:
    """Counts while it reads. `stats` is up to date after an error, too: it tells what was before it."""

    def __init__(
        self, paths: Sequence[Path], *, progress: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        files = GivenFiles(paths)
        self.stats = Stats(len(paths), files.bytes_total)
        self._reader = FileReader(files, progress=lambda done: progress(done, files.bytes_total), look=self._look)
        self._looked = ("", 0)
        self._parts: dict[int, TransactionFigures] = {}  # of transactions that come in several entries, by commit_ts

    def read(self) -> Stats:
        for item in self._reader.read():
            if isinstance(item, Seen):
                self._seen(item)
            else:
                self._group(item)
        return self.stats

    def _look(self, chunk: Chunk) -> None:
        """Counts the events of a chunk, unless it is read again."""
        name, end = self._looked
        if chunk.file and chunk.file != name:
            name, end = chunk.file, 0
        if chunk.start < end:
            return
        self._looked = (name, chunk.start + len(chunk.data))
        kinds = np.bincount(split_events(chunk.data).type, minlength=256)
        for kind in np.flatnonzero(kinds).tolist():
            self.stats.events[type_name(kind)] += int(kinds[kind])

    def _seen(self, seen: Seen) -> None:
        query = seen.told.query
        if query is None:
            self.stats.endings[str(seen.told.ending)] += 1
        elif seen.is_ddl:
            self.stats.ddl += 1
        else:
            self.stats.statements += 1

    def _group(self, group: EntryGroup) -> None:
        rows = group.rows()
        if rows is None:
            return
        records = np.concatenate([parsed.transactions for _, parsed in group.entries])
        rows_of = np.zeros(len(records), np.int64)
        for one in rows.tables:
            key = (one.table.schema, one.table.table)
            figures = self.stats.tables.setdefault(key, TableFigures(*key))
            for events, counts in rows.counts(one):
                self._add(figures, rows, events, counts)
                np.add.at(rows_of, rows.origins.transaction[events], counts)
        self.stats.committed += int(np.isin(records["part"], (Part.WHOLE, Part.LAST)).sum())
        self._transactions(group, records, rows_of)

    @staticmethod
    def _add(
        figures: TableFigures, rows: GroupRows, events: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> None:
        ops = _OP_OF_TYPE[rows.events.type[events]]
        figures.insert += int(counts[ops == OP_INSERT].sum())
        figures.update += int(counts[ops == OP_UPDATE].sum())
        figures.delete += int(counts[ops == OP_DELETE].sum())
        figures.events += len(events)
        figures.bytes += int(rows.events.size[events].sum())

    def _transactions(self, group: EntryGroup, records: npt.NDArray[np.void], rows_of: npt.NDArray[np.int64]) -> None:
        whole = records["part"] == Part.WHOLE
        size = np.where(whole, records["length"], 0)
        top = np.argsort(size, kind="stable")[::-1][:LARGEST]
        first = np.cumsum([0, *(len(parsed.transactions) for _, parsed in group.entries)])
        for i in [*top[size[top] > 0].tolist(), *np.flatnonzero(~whole).tolist()]:
            record = records[i]
            header = group.entries[int(np.searchsorted(first, i, side="right")) - 1][1].header
            tag = header.tags[int(record["tag"]) - 1] if record["tag"] else ""
            made = TransactionFigures(
                f"{header.files[int(record['file'])]}:{int(record['start_pos'])}",
                gtid_text(header.flavour, bytes(record["gtid"]), tag),
            )
            if not whole[i]:
                made = self._parts.setdefault(int(record["commit_ts"]), made)
            made.bytes += int(record["length"])
            made.events += int(record["events"])
            made.rows += int(rows_of[i])
            if record["part"] == Part.LAST:
                del self._parts[int(record["commit_ts"])]
            if record["part"] in (Part.WHOLE, Part.LAST):
                self.stats.largest.append(made)
        self.stats.largest.sort(key=lambda one: -one.bytes)
        del self.stats.largest[LARGEST:]
