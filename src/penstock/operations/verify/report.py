"""What `penstock verify` found: the differences of a table or a sink, and the report of each sink."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

EXAMPLES_MAX = 5  # of one table
_FAULTS_MAX = 20


@dataclass(slots=True)
class Differences:
    """Changes that were compared, how many of them are not equal and why, and a few examples in words."""

    changes: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    unknown: int = 0
    pending: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.unknown)

    def example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in asdict(self).items() if name != "examples"}

    def add(self, other: Differences) -> None:
        """Adds the counts of another table; its examples stay with it."""
        for name, count in other.counts().items():
            setattr(self, name, getattr(self, name) + count)


@dataclass(slots=True)
class SinkReport:
    """One sink against log and source. `differences` counts all its tables; `faults` says what is wrong, at most
    twenty; `source_error` why the source could not be asked."""

    name: str
    tables_count: int = 0
    differences: Differences = field(default_factory=Differences)
    before_log: int = 0
    expired: int = 0
    compared_with_source: int = 0
    source_equal: int = 0
    source_error: str = ""
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.faults and self.differences.equal

    def fault(self, text: str) -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(text)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tables_count": self.tables_count,
            **self.differences.counts(),
            "before_log": self.before_log,
            "expired": self.expired,
            "compared_with_source": self.compared_with_source,
            "source_equal": self.source_equal,
            "source_error": self.source_error or None,
            "faults": self.faults,
            "notes": self.notes,
            "equal": self.equal,
        }


@dataclass(slots=True)
class VerifyReport:
    """The reports of every sink. `running`: a run owns the flow, so what is missing is still on its way."""

    sinks: list[SinkReport]
    running: bool = False

    @property
    def equal(self) -> bool:
        return all(sink.equal for sink in self.sinks)

    @property
    def pending(self) -> int:
        """Changes that are in the log and not at a sink."""
        return sum(sink.differences.pending for sink in self.sinks)

    @property
    def left_behind(self) -> bool:
        """Whether changes are missing at a sink and nobody is bringing them there."""
        return self.pending > 0 and not self.running

    @property
    def source_error(self) -> str:
        """Why a comparison with the source that was asked for is missing; empty if none is."""
        return next((sink.source_error for sink in self.sinks if sink.source_error), "")

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "pending": self.pending,
            "running": self.running,
            "sinks": [sink.to_json() for sink in self.sinks],
        }
