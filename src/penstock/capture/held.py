"""XA groups that are prepared: which there are, where their entries are in the log, and the pin that keeps them.

A group's entries are found by their commit_ts, from a position of the log on that was its end before the first of them
was appended. One pin, at the lowest of these positions, keeps them from being trimmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.entries.format import Kind, ParsedEntry, parse_entry
from penstock.entries.stores import SOURCE_HELD
from penstock.errors import Corruption
from penstock.files import Buffer
from penstock.log import Log
from penstock.log.position import Position
from penstock.sources.position import HeldGroup, OpenTransaction
from penstock.state import BucketState

PIN = "capture.held"
REMEMBERED_BYTES_MAX = 32 << 20  # of small groups that are kept in memory until they commit, which is soon as a rule


class LogHeldGroups:
    """The groups of one log. `finish` returns once everything appended is durable."""

    def __init__(self, log: Log, state: BucketState, finish: Callable[[], None]) -> None:
        self._log = log
        self._finish = finish
        self.store = state.store(SOURCE_HELD)
        self._remembered: dict[str, tuple[int, bytes]] = {}
        self._remembered_bytes = 0
        self._pinned: Position | None = None
        stored = log.pins().get(PIN)
        if stored is not None:
            self._pinned = stored

    def find(self, xid: str) -> HeldGroup | None:
        return self.store.get(xid)

    def groups(self) -> list[HeldGroup]:
        return [group for _, group in self.store.items()]

    def hold(self) -> str:
        """Held entries are about to be appended: a position before them, kept from here on."""
        end = self._log.end()
        if self._pinned is None:
            self._log.pin(PIN, end)
            self._pinned = end
        return str(end)

    def remember(self, group: HeldGroup, data: Sequence[Buffer]) -> None:
        """The entry of a group that has one: it need not be read back if it is small and commits soon."""
        size = sum(len(part) for part in data)
        if group.entries == 1 and self._remembered_bytes + size <= REMEMBERED_BYTES_MAX:
            self._remembered[group.xid] = (group.commit_ts, b"".join(bytes(part) for part in data))
            self._remembered_bytes += size

    def forget(self, xid: str) -> None:
        remembered = self._remembered.pop(xid, None)
        if remembered is not None:
            self._remembered_bytes -= len(remembered[1])

    def release(self, open_transaction: OpenTransaction | None = None) -> None:
        """A group is gone from the state: what only it needed may be trimmed. After the frame that says so."""
        if self._pinned is None:
            return
        needed = [Position.parse(group.after) for group in self.groups() if group.after]
        if open_transaction is not None and open_transaction.after:
            needed.append(Position.parse(open_transaction.after))
        if not needed:
            self._log.unpin(PIN)
            self._pinned = None
        elif min(needed) > self._pinned:
            self._pinned = min(needed)
            self._log.pin(PIN, self._pinned)

    def read(self, group: HeldGroup) -> Iterator[ParsedEntry]:
        """The group's entries in order; one is in memory at a time."""
        remembered = self._remembered.get(group.xid)
        if remembered is not None and remembered[0] == group.commit_ts:
            yield parse_entry(remembered[1])
            return
        self._finish()
        left = group.entries
        for entry in self._log.read(Position.parse(group.after), self._log.end()):
            if not len(entry.data):
                continue
            parsed = parse_entry(entry.data)
            records = parsed.transactions
            if not ((records["kind"] == Kind.HELD) & (records["commit_ts"] == group.commit_ts)).any():
                continue
            yield parsed
            left -= 1
            if not left:
                return
        raise Corruption(
            f"the log lacks {left} of {group.entries} entries of the XA group {group.xid}, after {group.after}",
            hint="`penstock log verify` says what else is missing",
        )
