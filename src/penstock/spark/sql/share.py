"""What the task of a range is told of its `sql:` tables. The driver imports this module early, so it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SqlShare:
    """`plans`: what Spark understood, by `plan_key`; JSON of a `SqlPlan`, or `!` and why the statement does not fit.
    `files`: by a table's name at the source, what Spark made of its rows in the range. `stops`: by its name, why Spark gave up,
    and at which image of the range."""

    plans: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    stops: dict[str, tuple[str, int]] = field(default_factory=dict)
