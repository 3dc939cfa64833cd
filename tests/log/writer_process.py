"""Run as a process by test_kill.py: appends and acks until it is killed, saying on standard output what was durable."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

from penstock.log import Cursor, Log, LogReader, LogSettings, Pending, Position
from penstock.state import BucketState, StateDescriptor
from penstock.state.types import codecs

COUNTER: StateDescriptor[str, int] = StateDescriptor("counter", "test", codecs.text, codecs.u64)
SETTINGS = LogSettings(ledger_bytes_max=200_000, preallocate_bytes=1 << 20)


def payload(number: int) -> bytes:
    return b"%d:" % number + bytes([number % 251]) * (number * 37 % 3000)


def main(directory: Path) -> None:
    log = Log.open(directory / "log", SETTINGS)
    state = BucketState.open(log)
    store = state.store(COUNTER)
    reader = LogReader.open(directory / "log")
    cursor = Cursor.open(reader, directory / "cursors", "c")
    number = (store.get("n") or 0) if log.end().entry_id >= 0 else 0
    waiting: deque[tuple[int, Pending[Position]]] = deque()
    while True:
        number += 1
        change = state.begin()
        store.put(change, "n", number)
        waiting.append((number, state.commit(change, [payload(number)])))
        if len(waiting) > 20:
            first, pending = waiting.popleft()
            position = pending.result()
            sys.stdout.write(f"entry {first} {position}\n")
            if first % 3:  # leaves holes
                cursor.ack(position, position).result()
                sys.stdout.write(f"ack {first} {position}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
