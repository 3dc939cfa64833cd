"""The `rules:` of a configuration, for all sinks and of one sink: plain data. Unknown keys are refused.

Light: reading a configuration, and the delivery process, need no Arrow.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from penstock.rules.expressions.parser import parse
from penstock.rules.expressions.syntax import BadExpression
from penstock.rules.routes import checked_route, is_pattern
from penstock.rules.sql.text import checked_select, names_in

MaskName = Literal["hmac-sha256", "sha256", "redact", "null"]
KEYED: MaskName = "hmac-sha256"
KEY_CHARACTERS_MIN = 16
_OWN_COLUMNS = ("_op", "_commit_ts", "_seq")  # of Parquet, in every row
_COLUMN_NAME = re.compile(r"[^\x00`]{1,64}")


class Rule(BaseModel):
    """What happens to the rows of the tables that match `table`, in this order: `filter`, `mask`, `compute`, then `columns`
    or `drop`, then `sql`, then `route`. A rule sees what the rules before it made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: str
    filter: str | None = None
    mask: dict[str, MaskName] = {}
    compute: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    sql: str | None = None
    route: str | None = None

    @field_validator("table")
    @classmethod
    def _schema_and_table(cls, value: str) -> str:
        schema, point, table = value.partition(".")
        if not point or not schema or not table:
            raise ValueError(f"{value!r} names no table: write schema.table, or schema.* for all tables of a schema")
        return value

    @field_validator("filter")
    @classmethod
    def _readable(cls, value: str | None) -> str | None:
        if value is not None:
            _parsed(value)
        return value

    @field_validator("sql")
    @classmethod
    def _one_select(cls, value: str | None) -> str | None:
        return value if value is None else checked_select(value)

    @field_validator("mask", mode="before")
    @classmethod
    def _null(cls, value: Any) -> Any:
        """`{email: null}` is a null of YAML."""
        if not isinstance(value, dict):
            return value
        return {column: "null" if kind is None else kind for column, kind in value.items()}

    @field_validator("compute")
    @classmethod
    def _computed(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            check_column_name(name)
            try:
                _parsed(text)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        return value

    @field_validator("columns", "drop", "mask", "compute")
    @classmethod
    def _once(cls, value: Any) -> Any:
        names = [str(name).lower() for name in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"{name} stands there twice")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Rule:
        if self.columns and self.drop:
            raise ValueError("columns says which stay, and drop which go: give one of them")
        if not any((self.filter, self.mask, self.compute, self.columns, self.drop, self.sql, self.route)):
            raise ValueError("the rule does nothing: give filter, mask, compute, columns, drop, sql or route")
        if self.sql is not None and not self.is_exact:
            raise ValueError(f"sql: it reads the columns of one table, and several may match {self.table}; name one")
        if self.route is not None:
            checked_route(self.route)
        return self

    @property
    def is_exact(self) -> bool:
        """Whether it is for one table. Of many tables, some may lack a column that is masked, kept or dropped."""
        return not is_pattern(self.table)

    def named_columns(self) -> set[str]:
        """The columns of the table that it names, in lower case: without one of them it cannot do what it says."""
        names = {name.lower() for name in (*self.mask, *self.columns, *self.drop)}
        if self.sql is not None:
            names |= names_in(self.sql)
        texts = [*([self.filter] if self.filter else []), *self.compute.values()]
        return names.union(*(parse(text).names() for text in texts))


def check_column_name(name: str) -> None:
    """Raises `ValueError` if a column that a rule makes cannot have the name."""
    if not _COLUMN_NAME.fullmatch(name) or name != name.strip():
        raise ValueError(f"{name!r} cannot name a column")
    if name.lower() in _OWN_COLUMNS:
        raise ValueError(f"{name} is a column of every Parquet file; use another name")


def _parsed(text: str) -> None:
    try:
        parse(text)
    except BadExpression as error:
        raise ValueError(error.message) from None


def uses_key(rules: Sequence[Rule]) -> bool:
    """Whether a mask needs `mask_key`."""
    return any(KEYED in rule.mask.values() for rule in rules)


def check_key(rules: Sequence[Rule], key: str | None) -> None:
    """Raises `ValueError` if a mask needs a key and there is none, or one that is easily guessed."""
    if not uses_key(rules):
        return
    if not key:
        raise ValueError("hmac-sha256 needs a key: mask_key: ${PENSTOCK_MASK_KEY}, a variable of the environment")
    if len(key) < KEY_CHARACTERS_MIN:
        raise ValueError(f"mask_key has at least {KEY_CHARACTERS_MIN} characters: openssl rand -hex 32 makes one")


def rules_from_json(value: Any) -> tuple[Rule, ...]:
    return tuple(Rule.model_validate(one) for one in value or ())


def rules_to_json(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    return [rule.model_dump(mode="json", exclude_defaults=True) for rule in rules]
