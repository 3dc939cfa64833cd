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
    misplaced: int = 0
    unknown: int = 0
    pending: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.lost or self.doubled or self.wrong or self.misplaced or self.unknown)

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
class SourceDifferences:
    """A rebuilt table against the source's: rows of both, keys that one of them lacks or that have other values, and a few
    of these keys in words. `before_log`: rows of the source of which the log, which began after them, never had a change."""

    rows_at_sink: int = 0
    rows_at_source: int = 0
    only_at_sink: int = 0
    only_at_source: int = 0
    different: int = 0
    collisions: int = 0  # rows of a table that several of the source are, whose key another one has too
    before_log: int = 0
    keys: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.only_at_sink or self.only_at_source or self.different or self.collisions)

    def key(self, text: str) -> None:
        if len(self.keys) < EXAMPLES_MAX:
            self.keys.append(text)


@dataclass(slots=True)
class TableReport:
    """One table. `with_source` is None if it was not compared with the source, and `note` says why."""

    name: str
    differences: Differences = field(default_factory=Differences)
    with_source: SourceDifferences | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.name,
            **self.differences.counts(),
            "with_source": None
            if self.with_source is None
            else {**asdict(self.with_source), "equal": self.with_source.equal},
            "note": self.note or None,
        }


@dataclass(slots=True)
class SinkReport:
    """One sink against log and source. `differences` counts all its tables; `faults` says what is wrong, at most
    twenty; `held` what is not there, or was not compared, though it should be; `loading` which tables' rows are not all in
    the log yet; `source_error` why the source could not be asked."""

    name: str
    tables: dict[str, TableReport] = field(default_factory=dict)
    differences: Differences = field(default_factory=Differences)
    before_log: int = 0
    expired: int = 0
    source_error: str = ""
    faults: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    loading: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def tables_count(self) -> int:
        return len(self.tables)

    @property
    def compared_with_source(self) -> int:
        return sum(table.with_source is not None for table in self.tables.values())

    @property
    def source_equal(self) -> int:
        return sum(table.with_source is not None and table.with_source.equal for table in self.tables.values())

    @property
    def equal(self) -> bool:
        """Whether nothing differs of what was compared."""
        return not self.faults and self.differences.equal

    @property
    def whole(self) -> bool:
        """Whether everything was there to be compared."""
        return not (self.held or self.loading or self.expired or self.source_error or self.differences.pending)

    def table(self, name: str) -> TableReport:
        return self.tables.setdefault(name, TableReport(name))

    def fault(self, text: str) -> None:
        if len(self.faults) < _FAULTS_MAX:
            self.faults.append(text)

    def hold(self, text: str) -> None:
        self.held.append(text)

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
            "held_back": self.held,
            "loading": self.loading,
            "notes": self.notes,
            "tables": [table.to_json() for table in self.tables.values()],
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
        """Whether rows are missing at a sink and nobody is bringing them there."""
        return (self.pending > 0 or any(sink.loading for sink in self.sinks)) and not self.running

    @property
    def held_back(self) -> bool:
        """Whether something is not there, or could not be compared, that waiting alone does not bring."""
        return self.left_behind or any(sink.held for sink in self.sinks)

    @property
    def source_error(self) -> str:
        """Why a comparison with the source that was asked for is missing; empty if none is."""
        return next((sink.source_error for sink in self.sinks if sink.source_error), "")

    def to_json(self) -> dict[str, Any]:
        return {
            "equal": self.equal,
            "held_back": self.held_back,
            "pending": self.pending,
            "running": self.running,
            "sinks": [sink.to_json() for sink in self.sinks],
        }
