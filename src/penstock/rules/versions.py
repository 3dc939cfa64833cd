"""The settings that shape rows, and their versions over the log (docs/formats/settings-versions.md): plain data, without Arrow."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.errors import Corruption
from penstock.log.position import Position
from penstock.rules.holds import Hold
from penstock.rules.settings import Rule, rules_from_json, rules_to_json, uses_key
from penstock.sources.settings import Tables

EVERYTHING = ("*.*",)
BEGINNING = Position(0, 0)
_PATTERNS = ("only", "exclude", "source_include", "source_exclude")


def key_fingerprint(key: str | None) -> str:
    """Tells of a key only whether it is the same; empty without one."""
    return hmac.new(key.encode(), b"penstock mask key", hashlib.sha256).hexdigest()[:16] if key else ""


@dataclass(frozen=True)
class RowSettings:
    """What decides which rows of which tables a sink gets, and how. `key`: the fingerprint of the key of its masks; empty
    if none of them needs it."""

    rules: tuple[Rule, ...] = ()
    only: tuple[str, ...] = EVERYTHING
    exclude: tuple[str, ...] = ()
    source_include: tuple[str, ...] = EVERYTHING
    source_exclude: tuple[str, ...] = ()
    key: str = ""

    @classmethod
    def of(cls, changefeed: dict[str, Any], key: str | None) -> RowSettings:
        """Of a changefeed's settings, as `penstock run` gives them to its processes."""
        rules = rules_from_json(changefeed.get("rules"))
        given = {name: tuple(changefeed[name]) for name in _PATTERNS if changefeed.get(name) is not None}
        return cls(rules, **given, key=key_fingerprint(key) if uses_key(rules) else "")

    def to_json(self) -> dict[str, Any]:
        patterns = {name: list(getattr(self, name)) for name in _PATTERNS}
        return {**patterns, "rules": rules_to_json(self.rules), "key": self.key}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RowSettings:
        given = {name: tuple(value[name]) for name in _PATTERNS if name in value}
        return cls(rules_from_json(value.get("rules")), **given, key=str(value.get("key", "")))

    @cached_property
    def _filters(self) -> tuple[Tables, Tables]:
        own = Tables(include=self.only, exclude=self.exclude)
        return own, Tables(include=self.source_include, exclude=self.source_exclude)

    def wants(self, schema: str, table: str) -> bool:
        """Whether the sink takes the table: its own filter and the source's both include it; `exclude` wins."""
        return all(tables.matches(schema, table) for tables in self._filters)

    def difference(self, now: RowSettings) -> str:
        """What is different now, in words; the first thing of several."""
        for name in _PATTERNS:
            if getattr(self, name) != getattr(now, name):
                return f"{_SPELLED[name]} was {_listed(getattr(self, name))} and is now {_listed(getattr(now, name))}"
        old, new = rules_to_json(self.rules), rules_to_json(now.rules)
        for number in range(max(len(old), len(new))):
            was, is_now = (rules[number] if number < len(rules) else None for rules in (old, new))
            if was != is_now:
                return f"rule {number + 1} was {_shown(was)} and is now {_shown(is_now)}"
        return "mask_key is another one" if self.key != now.key else "nothing is different"


_SPELLED = {"only": "only", "exclude": "exclude", "source_include": "source.tables.include", "source_exclude": "source.tables.exclude"}  # fmt: skip


def _listed(patterns: Sequence[str]) -> str:
    return ", ".join(patterns) or "empty"


def _shown(rule: dict[str, Any] | None) -> str:
    return "not there" if rule is None else json.dumps(rule, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class SettingsVersion:
    """`since`: the first position that it holds for. `table_version`: of tables whose shape changes there. `held`: the tables
    that are held back there by what statements before it did."""

    since: Position
    table_version: int
    settings: RowSettings
    held: tuple[Hold, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "since": str(self.since),
            "table_version": self.table_version,
            "settings": self.settings.to_json(),
            **({"held": [hold.to_json() for hold in self.held]} if self.held else {}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SettingsVersion:
        """Raises `Corruption` where `value` is not what `to_json` makes."""
        try:
            settings = RowSettings.from_json(value["settings"])
            held = tuple(Hold.from_json(hold) for hold in value.get("held", ()))
            return cls(Position.parse(value["since"]), int(value["table_version"]), settings, held)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(f"a version of settings cannot be read: {error!r}: {value!r}") from error


def number_at(versions: Sequence[SettingsVersion], position: Position) -> int:
    """Which of the versions, ascending, holds at `position`."""
    return max((at for at, version in enumerate(versions) if version.since <= position), default=0)
