"""What is asked for by `penstock backfill`: the request that goes from the command to capture. Imports next to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import BadInput
from penstock.patterns import matches

REQUEST = "backfill"


@dataclass(frozen=True, slots=True)
class Backfill:
    """What is asked for. `tables`: `schema.table`, with `*` and `?`; each must take one. `where`: a condition in SQL."""

    tables: tuple[str, ...]
    where: str = ""

    def to_json(self) -> dict[str, Any]:
        return {"tables": list(self.tables), "where": self.where}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Backfill:
        tables, where = value.get("tables"), value.get("where", "")
        if not isinstance(tables, list) or not tables or not all(isinstance(name, str) for name in tables):
            raise BadInput("a request to backfill names no tables", hint="schema.table, or schema.*")
        if not isinstance(where, str):
            raise BadInput(f"where must be text, not {where!r}")
        return cls(tuple(tables), where)

    def matches(self, schema: str, table: str) -> bool:
        return any(matches(f"{schema}.{table}", pattern) for pattern in self.tables)

    def names(self, schema: str, table: str) -> bool:
        """Whether the table is named, and not only taken by a pattern."""
        return f"{schema}.{table}" in self.tables
