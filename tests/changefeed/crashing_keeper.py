"""A real process for the kill -9 test: delivers entry after entry and says what was answered, until it is killed."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from penstock.changefeed.keeper import Keeper
from penstock.delivery.keeper_client import Intent
from penstock.log import LogReader
from penstock.log.position import Position, Seq

said = 0
die_after = int(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2].isdigit() else 0
DISPATCHERS = ("a" * 32, "b" * 32)


def intent_for(dispatcher: str, entry: int) -> Intent:
    seq = Seq(1, entry, 0, 0)
    return Intent(f"{dispatcher[0]}/CDC{entry:06}", seq, seq, entry, entry * 7)


def answered(line: str) -> None:
    """Says it, and dies of kill -9 where the second argument says so."""
    global said
    print(line, flush=True)
    said += 1
    if said == die_after:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    state_dir = Path(sys.argv[1])
    keeper = Keeper.open(state_dir, "lake", LogReader.open(state_dir / "log"))
    keeper.create({dispatcher: ("shop", dispatcher[0]) for dispatcher in DISPATCHERS})
    start = keeper.begin_run("r1")
    end = keeper.reader.end()
    print(f"begin {start.entry_id}", flush=True)
    for entry in range(start.entry_id, end.entry_id + 1):
        seq = Seq(1, entry, 0, 0)
        keeper.published("r1", Position(1, entry), Position(1, entry), entry + 1, dict.fromkeys(DISPATCHERS, seq))
        for dispatcher in DISPATCHERS:
            facts = keeper.facts()[dispatcher]
            if facts.progress is not None and facts.progress >= seq:
                continue
            intent = intent_for(dispatcher, entry)
            keeper.intent(dispatcher, 1, intent)
            answered(f"intent {dispatcher} {entry}")
            checkpoint = keeper.done(dispatcher, 1, seq, intent.path)
            answered(f"done {dispatcher} {entry} {checkpoint}")
    keeper.close()


if __name__ == "__main__":
    main()
