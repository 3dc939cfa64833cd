"""What the users of a cursor were told, and so what must be found again after any crash."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.crash.framework.promises import Violation, must

Acked = frozenset[int] | None  # None: there is no such cursor


@dataclass
class CursorFacts:
    """`versions`: the set of acked entries after each operation that was sent, in order. Those up to index `durable` were
    acknowledged; a crash may leave any version from there on. A deletion leaves the version None, and the cursor that is
    made under the same name afterwards begins with nothing of its predecessor's."""

    versions: list[Acked] = field(default_factory=lambda: [frozenset()])
    durable: int = 0
    unacked_since: frozenset[int] = frozenset()  # entries that another owner, which came meanwhile, found unacked

    @property
    def newest(self) -> Acked:
        return self.versions[-1]

    @property
    def allowed(self) -> list[Acked]:
        """What a crash may leave."""
        return self.versions[self.durable :]

    @property
    def is_there(self) -> bool:
        """Whether it exists for sure, so that nothing it needs may be trimmed."""
        return None not in self.allowed

    def may_have(self, numbers: frozenset[int]) -> bool:
        """Whether a crash may leave all of these acked."""
        return any(acked is not None and acked >= numbers for acked in self.allowed)

    def take_back(self, version: int) -> None:
        """What was sent last turned out not to be."""
        assert version == len(self.versions) - 1
        self.versions.pop()

    def copy(self) -> CursorFacts:
        return CursorFacts(self.allowed)

    def send(self, acked: Acked) -> int:
        self.versions.append(acked)
        return len(self.versions) - 1

    def confirm(self, version: int) -> None:
        self.durable = max(self.durable, version)

    def check_there(self, name: str, is_there: bool) -> None:
        """`is_there`: whether the reopened log has the cursor."""
        if is_there:
            must(any(acked is not None for acked in self.allowed), f"cursor {name} came back after its deletion")
        else:
            must(not self.is_there, f"cursor {name} is gone, though nobody deleted it")

    def check_acked(self, name: str, acked: set[int], there: set[int]) -> None:
        """`acked`: of the entries `there`, those that the reopened cursor has acked."""
        allowed = [version & there for version in self.allowed if version is not None]
        if acked not in allowed:
            lost = sorted(allowed[0] - acked) if allowed else []
            raise Violation(
                f"cursor {name}: acks of {lost} are lost" if lost else
                f"cursor {name} has {sorted(acked)} acked, allowed are {[sorted(version) for version in allowed]}"
            )  # fmt: skip

    def found(self, acked: set[int] | None, there: set[int]) -> CursorFacts:
        """The facts from a reopening on, which found `acked` of the entries `there`; None: the cursor is there, and nobody
        looked into it."""
        if acked is None:
            return CursorFacts([version for version in self.allowed if version is not None])
        self.unacked_since = frozenset(there - acked)
        return CursorFacts([frozenset(acked)])
