"""Tables that rules hold back because of what a statement did to them: a column that a rule names may be gone, or be there
under another name and in the clear. Light: no Arrow.

A hold is a fact of the past, and outlives the settings that made it: whatever else they say later, the table stays back
until the rule itself is another one (docs/formats/settings-versions.md).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from penstock.log.position import Position
from penstock.patterns import matches
from penstock.rules.expressions.parser import parse
from penstock.rules.routes import Name
from penstock.rules.settings import Rule
from penstock.rules.sql.text import names_in
from penstock.schema.model import ChangeKind, TableSchema
from penstock.schema.view import SchemaView


@dataclass(frozen=True, slots=True)
class NamedRule:
    """A rule and how messages call it: its number among all rules of the sink, and its table."""

    name: str
    rule: Rule


RulesOf = Callable[[Name], Sequence[NamedRule]]


def rules_of(rules: Sequence[Rule]) -> RulesOf:
    """Those of a table, by its name at the source, in their order."""
    named = [NamedRule(f"rule {number} ({rule.table})", rule) for number, rule in enumerate(rules, 1)]
    found: dict[Name, tuple[NamedRule, ...]] = {}

    def of(name: Name) -> tuple[NamedRule, ...]:
        if name not in found:
            full = ".".join(name)
            found[name] = tuple(one for one in named if name[1] and matches(full, one.rule.table))
        return found[name]

    return of


@dataclass(frozen=True, slots=True)
class Hold:
    """`by`: the table whose rules hold it back. `column`: what it lost, and they name; empty where it got a name with other
    rules. `said`: what the rules said of it."""

    schema: str
    table: str
    by: Name
    column: str
    said: str
    reason: str

    def holds(self, of: RulesOf) -> bool:
        """Whether it does by these rules too: they say the same as then."""
        if self.column:
            return any(_said(named.rule, self.column) == self.said for named in of(self.by))
        return _shaping(of(self.by)) == self.said != _shaping(of((self.schema, self.table)))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "by": list(self.by)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Hold:
        return cls(**{**value, "by": tuple(value["by"])})


def hold_of(table: TableSchema, before: TableSchema | None, origin: TableSchema | None, of: RulesOf) -> Hold | None:
    """Why the table is held back from a statement on that made this version of it; None if it is not. `origin`: what was
    renamed to it, if the sink takes that name."""
    if not table.columns or table.parked:
        return None
    name = (table.schema, table.table)
    if origin is not None:
        by = (origin.schema, origin.table)
        said = _shaping(of(by))
        if said != _shaping(of(name)):
            reason = f"{origin.name} became {table.name}, which has other rules; give both names the same rules"
            return Hold(*name, by, "", said, reason)
    # Also where another table takes the name, by a rename or CREATE OR REPLACE: what was hidden under it may be there in the
    # clear, under a name that the rule does not know.
    for was in (origin, before):
        if was is None:
            continue
        had, has = ({column.name.lower() for column in one.columns} for one in (was, table))
        for named in of(name):
            for lost in sorted((named.rule.named_columns() & had) - has):
                reason = f"{named.name}: {table.name} has no column {lost} any more, which the rule names"
                return Hold(*name, name, lost, _said(named.rule, lost), reason)
    return None


class HeldTables:
    """Follows the statements of the log, by one version of the settings. `takes`: whether the sink has, or had, a table;
    `held`: those that were held back before."""

    def __init__(self, of: RulesOf, takes: Callable[[str, str], bool], held: Iterable[Hold] = ()) -> None:
        self._of = of
        self._takes = takes
        self.now: dict[Name, Hold] = {(hold.schema, hold.table): hold for hold in held if hold.holds(of)}

    def follow(self, position: Position, made: Sequence[TableSchema], view: SchemaView) -> list[Name]:
        """The versions that a statement makes; `view` knows them, and those before them. Returns the names of which they are."""
        before = {(table.schema, table.table): view.before(table.schema, table.table, position) for table in made}
        found: dict[Name, Hold | None] = {}
        for table in made:
            name = (table.schema, table.table)
            if not table.table and table.kind is ChangeKind.DROP_DATABASE:
                found.update({one: None for one in self.now if one[0] == table.schema})
            if not table.table or table.dropped:
                found[name] = None
                continue
            came: Name | None = name if before[name] is not None else None
            origin = None
            if table.kind is ChangeKind.RENAME:
                came = next((other for other in before if ".".join(other) == table.other), None)
                origin = before[came] if came is not None and self._takes(*came) else None
            hold = self.now.get(came) if came is not None else None
            if hold is not None:
                hold = replace(hold, schema=table.schema, table=table.table)
            elif self._takes(*name):
                hold = hold_of(table, before[name], origin, self._of)
            found[name] = hold
        for name, hold in found.items():
            if hold is None:
                self.now.pop(name, None)
            else:
                self.now[name] = hold
        return list(found)


def held_after(held: HeldTables, history: Iterable[TableSchema], after: int, before: int) -> dict[Name, Hold]:
    """What is held back once the statements between two versions were followed, neither of them included. `history`: all
    versions."""
    view = SchemaView()
    ordered = sorted((table for table in history if table.version < before), key=_version)
    for number, (version, made) in enumerate(groupby(ordered, key=_version)):  # those of one statement have one version
        together = list(made)
        for table in together:
            view.add(Position(0, number), table)
        if version > after:
            held.follow(Position(0, number), together, view)
    return held.now


def _version(table: TableSchema) -> int:
    return table.version


def _shaping(rules: Sequence[NamedRule]) -> str:
    """What the rules do to rows, whatever tables they are for."""
    shapes = [named.rule.model_dump(exclude={"table", "route"}, exclude_defaults=True) for named in rules]
    return json.dumps([shape for shape in shapes if shape], sort_keys=True)


def _said(rule: Rule, column: str) -> str:
    """What a rule says of a column: whatever keys name it."""
    said: dict[str, Any] = {}
    for key in ("mask", "columns", "drop"):
        names = getattr(rule, key)
        if column in {name.lower() for name in names}:
            said[key] = names
    if rule.filter and column in parse(rule.filter).names():
        said["filter"] = rule.filter
    computed = {name: text for name, text in rule.compute.items() if column in parse(text).names()}
    if computed:
        said["compute"] = computed
    if rule.sql is not None and column in names_in(rule.sql):
        said["sql"] = rule.sql
    return json.dumps(said, sort_keys=True)
