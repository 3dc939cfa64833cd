"""Long work over many keys is done in portions, so that other threads get the GIL in between.

A table may hold a million keys. To free, copy or sort them in one step would stop every other thread of the process,
the log's writer among them, for as long as that takes.
"""

from __future__ import annotations

KEYS_AT_ONCE = 1000  # 0.1 to 0.2 ms of Python
PAUSE_SECONDS = 50e-6  # slept between portions: long enough that a thread which waits for the GIL gets it
