"""`--table`: which tables are shown, and which of the patterns named none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from penstock.errors import BadInput


class TableFilter:
    """Whether a table is among those that `schema.table` with `*` and `?` name. `unused`: patterns that named none yet."""

    def __init__(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if "." not in pattern:
                raise BadInput(f"--table {pattern} names no table", hint=f"write schema.table, for example {pattern}.*")
        self._patterns = {pattern: _compiled(pattern) for pattern in patterns}
        self.unused = set(patterns)

    def __call__(self, schema: str, table: str) -> bool:
        name = f"{schema}.{table}"
        fitting = {pattern for pattern, compiled in self._patterns.items() if compiled.fullmatch(name)}
        self.unused -= fitting
        return bool(fitting)


def _compiled(pattern: str) -> re.Pattern[str]:
    """A name may hold any other character, brackets too: they stand for themselves."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
