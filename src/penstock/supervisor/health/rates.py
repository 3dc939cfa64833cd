"""How fast something grows: the mean over a recent window, so that a file a minute is a rate and not a burst."""

from __future__ import annotations

from collections import deque

WINDOW_SECONDS = 120.0
_SECONDS_MIN = 5.0  # before that, nobody knows


class Rate:
    """For one thread. Samples come in the order of time; one a second at most is kept."""

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self._window = window_seconds
        self._samples: deque[tuple[float, float]] = deque()

    def note(self, at: float, value: float) -> None:
        """`value` is how much there is at that time."""
        if self._samples and at - self._samples[-1][0] < 1.0:
            return
        self._samples.append((at, value))
        while len(self._samples) > 2 and at - self._samples[0][0] > self._window:
            self._samples.popleft()

    @property
    def per_second(self) -> float | None:
        """None while too little was seen."""
        if len(self._samples) < 2 or self._samples[-1][0] - self._samples[0][0] < _SECONDS_MIN:
            return None
        (first_at, first), (last_at, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_at - first_at)
