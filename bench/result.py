"""One measured number, beside its peer, as `bench/results.json` holds it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """`ratio` is value over peer_value; `goal` is a least ratio. None where there is no peer, or no goal yet."""

    name: str
    value: float
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    goal: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.peer_value if self.peer_value else None

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ratio is not None and self.ratio >= self.goal

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "peer": self.peer,
            "peer_value": None if self.peer_value is None else round(self.peer_value, 4),
            "ratio": None if self.ratio is None else round(self.ratio, 4),
            "goal": self.goal,
            "met": self.met,
        }
