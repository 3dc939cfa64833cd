"""Runs the statement of a schema file on the tables rebuilt so far, as a server would: rows are renamed, emptied, exchanged.

Only what a sink may contain is understood: one statement for one table under its full name, but for the tables that a rename or
an exchange names. Partitions are followed where they are ranges of one integer column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tests.consumer.schemas import Schema
from tests.consumer.violation import require, violated

Name = tuple[str, str]
_TOKEN = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|[\w$]+|[^\s]", re.DOTALL)


@dataclass
class Table:
    """What is left of a table. A row of a table without a key is known by all its values."""

    schema: Schema
    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    counts: dict[tuple[Any, ...], int] = field(default_factory=dict)  # of equal rows, in a table without a key
    high: int = 0
    changes: int = 0
    partitions: tuple[str, dict[str, tuple[float, float]]] = ("", {})  # the column; from, up to but without

    def key_of(self, values: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(values.get(name) for name in self.schema.key or self.schema.names)

    def put(self, values: dict[str, Any], count: int) -> None:
        key = self.key_of(values)
        self.rows[key] = values
        self.counts[key] = self.counts.get(key, 0) + count

    def taken(self, partition: str) -> list[tuple[dict[str, Any], int]]:
        """Takes the rows of a partition out."""
        column, ranges = self.partitions
        require(partition in ranges, "runs", self.schema.path, f"no partition {partition} in {sorted(ranges)}")
        low, high = ranges[partition]
        keys = [key for key, row in self.rows.items() if low <= int(row[column]) < high]
        return [(self.rows.pop(key), self.counts.pop(key, 1)) for key in keys]


class Statements:
    """The tables of a sink, as its statements and rows make them."""

    def __init__(self) -> None:
        self.tables: dict[Name, Table] = {}

    def run(self, schema: Schema) -> None:
        """The schema file's statement, then its columns."""
        words = [token if token[0] in "'`" else token.upper() for token in _TOKEN.findall(schema.query)]
        tokens = _TOKEN.findall(schema.query)
        if not schema.table:
            if words[:2] == ["DROP", "DATABASE"]:
                self.tables = {name: table for name, table in self.tables.items() if name[0] != schema.schema}
            return
        renamed_columns: dict[str, str] = {}
        if words:
            renamed_columns = _Run(self.tables, schema, words, tokens).run()
        if schema.columns:
            self._adopt(schema, renamed_columns)

    def _adopt(self, schema: Schema, renamed: dict[str, str]) -> None:
        """The rows under the new version: columns that went are gone, new ones are null as far as this reader knows."""
        name = (schema.schema, schema.table)
        table = self.tables.setdefault(name, Table(schema))
        made = Table(schema, high=table.high, changes=table.changes, partitions=table.partitions)
        for key, row in table.rows.items():
            made.put({name: row.get(renamed.get(name, name)) for name in schema.names}, table.counts.get(key, 1))
        self.tables[name] = made


class _Run:
    def __init__(self, tables: dict[Name, Table], schema: Schema, words: list[str], tokens: list[str]) -> None:
        self.tables, self.schema, self.words, self.tokens = tables, schema, words, tokens
        self.own = (schema.schema, schema.table)

    def run(self) -> dict[str, str]:
        words = self.words
        if words[:2] == ["RENAME", "TABLE"]:
            self._rename(self._pairs(2))
        elif "TABLE" in words and words[0] in ("CREATE", "DROP", "TRUNCATE", "ALTER"):
            at = words.index("TABLE") + 1
            while words[at : at + 1] and words[at] in ("IF", "NOT", "EXISTS"):
                at += 1
            name, at = self._name(at)
            if words[0] == "ALTER":
                return self._alter(name, at)
            self._require_own(name)
            self._whole(words[0], at)
        elif "INDEX" in words and "ON" in words:
            self._require_own(self._name(words.index("ON") + 1)[0])
            require(self.own in self.tables, "runs", self.schema.path, "there is no such table")
        else:
            violated("runs", self.schema.path, f"not understood: {self.schema.query}")
        return {}

    def _require_own(self, name: Name) -> None:
        require(name == self.own, "one-table", self.schema.path, f"{name} in the file of {self.own}")

    def _name(self, at: int) -> tuple[Name, int]:
        parts = [_bare(token) for token in self.tokens[at : at + 3 : 2]]
        require(self.tokens[at + 1 : at + 2] == ["."], "qualified", self.schema.path, self.schema.query)
        return (parts[0], parts[1]), at + 3

    def _whole(self, word: str, at: int) -> None:
        """CREATE, DROP, TRUNCATE."""
        there = self.tables.get(self.own)
        if word == "CREATE":
            replaces = "REPLACE" in self.words[:4]
            tolerated = "EXISTS" in self.words[:at]
            require(there is None or replaces or tolerated, "runs", self.schema.path, "the table is there already")
            if there is None or replaces:
                self.tables[self.own] = Table(self.schema, partitions=self._partitions(at))
        elif word == "DROP":
            require(
                self.words[at:] in ([], ["RESTRICT"], ["CASCADE"]), "one-table", self.schema.path, self.schema.query
            )
            self.tables.pop(self.own, None)
        else:
            require(there is not None, "runs", self.schema.path, "there is no such table")
            if there is not None:
                there.rows, there.counts = {}, {}

    def _pairs(self, at: int) -> list[tuple[Name, Name]]:
        pairs = []
        while at < len(self.words):
            old, at = self._name(at)
            require(self.words[at : at + 1] == ["TO"], "rename", self.schema.path, self.schema.query)
            new, at = self._name(at + 1)
            pairs.append((old, new))
            at += 1  # the comma
        return pairs

    def _rename(self, pairs: list[tuple[Name, Name]]) -> None:
        for old, new in pairs:
            require(old in self.tables, "runs", self.schema.path, f"there is no {old}")
            require(new not in self.tables, "runs", self.schema.path, f"there is a {new} already")
            self.tables[new] = self.tables.pop(old)
        require(self.own in [new for _, new in pairs], "one-table", self.schema.path, self.schema.query)

    def _alter(self, name: Name, at: int) -> dict[str, str]:
        words = self.words
        require(name in self.tables, "runs", self.schema.path, f"there is no {name}")
        renames = [n for n in range(at, len(words) - 1) if words[n] == "RENAME" and words[n + 1] in ("TO", "AS", "=")]
        if renames:
            self._rename([(name, self._name(renames[0] + 2)[0])])
            name = self.own
        self._require_own(name)
        table = self.tables[name]
        clause = words[at : at + 2]
        if clause == ["EXCHANGE", "PARTITION"]:
            other = self.tables.get(self._name(at + 5)[0])
            if other is None:
                violated("runs", self.schema.path, "there is no table to exchange with")
            mine, theirs = table.taken(_bare(self.tokens[at + 2])), list(other.rows.values())
            counts = [other.counts.get(key, 1) for key in other.rows]
            other.rows, other.counts = {}, {}
            for values, count in mine:
                other.put(values, count)
            for values, count in zip(theirs, counts, strict=True):
                table.put(values, count)
        elif clause in (["DROP", "PARTITION"], ["TRUNCATE", "PARTITION"]):
            partition = _bare(self.tokens[at + 2])
            table.taken(partition)
            if clause[0] == "DROP":
                del table.partitions[1][partition]
        elif clause == ["ADD", "PARTITION"]:
            table.partitions[1].update(self._ranges(at, table.partitions[1]))
        return self._renamed_columns(at)

    def _renamed_columns(self, at: int) -> dict[str, str]:
        """New name → old name."""
        found = {}
        for n in range(at, len(self.words)):
            rest = [_bare(token) for token in self.tokens[n : n + 6]]
            words = self.words[n : n + 2]
            if words == ["RENAME", "COLUMN"]:
                found[rest[4]] = rest[2]
            elif words[0] == "CHANGE":
                start = 2 if words[1:] == ["COLUMN"] else 1
                found[rest[start + 1]] = rest[start]
        return found

    def _partitions(self, at: int) -> tuple[str, dict[str, tuple[float, float]]]:
        for n in range(at, len(self.words) - 5):
            if self.words[n : n + 4] == ["PARTITION", "BY", "RANGE", "("] and self.words[n + 5] == ")":
                return _bare(self.tokens[n + 4]), self._ranges(n + 6, {})
        return "", {}

    def _ranges(self, at: int, before: dict[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
        low = max((high for _, high in before.values()), default=float("-inf"))
        found = {}
        for n in range(at, len(self.words) - 5):
            if self.words[n] == "PARTITION" and self.words[n + 2 : n + 5] == ["VALUES", "LESS", "THAN"]:
                text = self.words[n + 6] if self.words[n + 5] == "(" else self.words[n + 5]
                high = float("inf") if text == "MAXVALUE" else float(text)
                found[_bare(self.tokens[n + 1])] = (low, high)
                low = high
        return found


def _bare(token: str) -> str:
    return token[1:-1].replace("``", "`") if token.startswith("`") else token
