"""How long cursors were unused, in time that a process really saw go by.

The wall clock may step: by its word a cursor used a minute ago was unused for years. So only time of the monotonic clock
counts, from when this process began to look. What earlier processes saw is carried over in the metadata store, under
`idle/<log>`: {"format": 1, "cursors": {name: [mark, seconds]}}. Time in which no process looked does not count, so a cursor
may live too long, never too short. A *mark* says what the cursor did last: while it stays the same, the cursor is unused.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.metadata import MetadataStore

_SAVE_SECONDS = 60.0


def idle_key(log_name: str) -> str:
    return f"idle/{log_name}"


@dataclass(slots=True)
class _Idle:
    mark: str
    seconds: float  # as of `since`
    since: float  # by the monotonic clock


class IdleTimes:
    """Not thread-safe: the holder locks."""

    def __init__(self, metadata: MetadataStore, log_name: str, clock: Clock) -> None:
        self._metadata = metadata
        self._key = idle_key(log_name)
        self._clock = clock
        self._began = self._saved_at = clock.monotonic()
        self._cursors: dict[str, _Idle] | None = None

    def seconds(self, name: str) -> float | None:
        """How long the cursor was unused, if it did nothing since it was looked at; None where it never was."""
        found = self._loaded().get(name)
        return None if found is None else found.seconds + self._clock.monotonic() - found.since

    def look(self, name: str, mark: str, active_ms: int) -> float:
        """As `seconds`, of a cursor that shows this mark, and that was last used at `active_ms` by the wall clock."""
        found = self._loaded().get(name)
        if found is None or found.mark != mark:
            # The wall clock may shorten what this process saw, never lengthen it.
            now = self._clock.monotonic()
            seen = min(now - self._began, max(self._clock.wall_ms() - active_ms, 0) / 1000)
            found = self._loaded()[name] = _Idle(mark, seen, now)
        return found.seconds + self._clock.monotonic() - found.since

    def used(self, name: str) -> None:
        """The cursor is in use now."""
        self._loaded().pop(name, None)

    def save(self, names: Collection[str]) -> None:
        """Forgets all but these cursors, and carries over what is known of them, about once a minute."""
        self._cursors = {name: one for name, one in self._loaded().items() if name in names}
        if self._clock.monotonic() - self._saved_at >= _SAVE_SECONDS:
            self.save_at_close()

    def save_at_close(self) -> None:
        """Carries over what is known. A failure is not raised: then a cursor lives longer."""
        if self._cursors is None:
            return
        self._saved_at = self._clock.monotonic()
        cursors = {name: [one.mark, self.seconds(name)] for name, one in self._cursors.items()}
        raw = json.dumps({"format": 1, "cursors": cursors}, separators=(",", ":")).encode()
        with contextlib.suppress(PenstockError):
            found = self._metadata.get(self._key)
            if found is None:
                if cursors:
                    self._metadata.create(self._key, raw)
            elif found.value != raw:
                self._metadata.put(self._key, raw, found.version)

    def _loaded(self) -> dict[str, _Idle]:
        if self._cursors is None:
            found = self._metadata.get(self._key)
            cursors = json.loads(found.value)["cursors"] if found is not None else {}
            self._cursors = {name: _Idle(mark, seconds, self._began) for name, (mark, seconds) in cursors.items()}
        return self._cursors
