"""One measured number, beside its peer, as `bench/results.json` holds it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Result:
    """`peer` and `peer_value` are None where there is no peer, `goal` where there is none yet.

    `goal` bounds the ratio of value to peer value: from below, or with `goal_kind` "ratio-most" from above. With
    "least" or "most" it bounds the value itself.
    """

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    goal: float | None = None
    goal_kind: Literal["ratio", "ratio-most", "least", "most"] = "ratio"

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        if self.goal_kind == "least":
            return self.value >= self.goal
        if self.goal_kind == "most":
            return self.value <= self.goal
        if self.ratio is None:
            return False
        return self.ratio <= self.goal if self.goal_kind == "ratio-most" else self.ratio >= self.goal

    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        if self.goal_kind == "ratio-most":
            return f"at most {self.goal:g}×"
        return f"{self.goal:g}×" if self.goal_kind == "ratio" else f"at {self.goal_kind} {self.goal:,g}"

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": None if self.peer_value is None else round(self.peer_value, 4),
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "goal": self.goal,
            "goal_kind": self.goal_kind if self.goal is not None else None,
            "met": self.met,
        }
