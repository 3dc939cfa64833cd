"""Tables that the rules hold back since a statement of before the tail, or of a table that it does not show.

A sink stops in front of a statement that takes away what a rule works on: what a mask hid may be there in the clear, under a
name that the rule does not know. A tail begins anywhere, and must not show what comes after such a statement either. So the
statements before it count: all of them, or, where it is known from when on the rules hold, those since then and what was
held back there. A table that is held back stays so under every name that it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.log.position import Position
from penstock.rules.holds import HeldTables, Hold, held_after
from penstock.rules.rules import Rules
from penstock.schema.model import TableSchema
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.schema.view import SchemaView

Name = tuple[str, str]
THROUGH_SQL = "its rows go through sql, which only Spark runs: they are not shown here as the sink has them"
_BEFORE_ALL = Position(-1, 0)
_AFTER_ALL = 1 << 64


class HiddenTables:
    """`history`: all versions of before the tail. `after`: the table version from which on the rules hold, and `held` what is
    held back there."""

    def __init__(self, rules: Rules, history: Iterable[TableSchema], held: Iterable[Hold] = (), after: int = 0) -> None:
        self._rules = rules
        self._held = HeldTables(rules.of, rules.wants, held)
        found = held_after(self._held, history, after, _AFTER_ALL)
        self._since = {name: [(_BEFORE_ALL, _reason(hold))] for name, hold in found.items()}

    def reason(self, name: Name, position: Position) -> str:
        """Why nothing of the table is shown there; empty if it is."""
        if self._rules.has_sql(name):
            return THROUGH_SQL
        return next((reason for since, reason in reversed(self._since.get(name, [])) if since <= position), "")

    def follow(self, position: Position, made: Sequence[TableSchema], view: SchemaView) -> None:
        """The versions that a statement makes; `view` knows them, and those before them."""
        for name in self._held.follow(position, made, view):
            hold = self._held.now.get(name)
            if hold is not None or name in self._since:
                self._since.setdefault(name, []).append((position, _reason(hold)))


def _reason(hold: Hold | None) -> str:
    return "" if hold is None else f"{STOPPED_BY_RULES}{hold.reason}"
