"""A capture of a few lines for the supervisor's tests: appends `source.entries` entries, then waits to be stopped.

`source.tricks` is a list, one trick for each start: "die" (exit 1 before ready), "bad-input", "exit-3", "stubborn"
(does not stop), "more" (appends on demand), "" (behaves). The last one holds for all later starts.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path

from penstock.commit_ts import commit_ts_of
from penstock.log import Log


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


def trick_of(state_dir: Path, name: str, tricks: list[str]) -> str:
    counter = state_dir / f"starts-{name}"
    starts = len(counter.read_text()) if counter.exists() else 0
    counter.write_text("x" * (starts + 1))
    return tricks[min(starts, len(tricks) - 1)] if tricks else ""


def note(state_dir: Path, line: str) -> None:
    with (state_dir / "order.txt").open("a") as file:
        file.write(line + "\n")


def wait_for_the_end(trick: str) -> None:
    if trick == "stubborn":
        while True:
            time.sleep(1)
    while sys.stdin.readline():
        pass


def answer_requests(handlers: dict[str, Callable[[str], None]]) -> None:
    """Answers the requests about changefeeds until the input ends."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        handlers[request["op"]](request["changefeed"])
        say(event="answer", request=request["request"], result={})


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    state_dir, source = Path(settings["state_dir"]), settings["source"]
    trick = trick_of(state_dir, "capture", source.get("tricks", []))
    print("this line is no event", flush=True)
    print("said on standard error", file=sys.stderr, flush=True)
    if trick == "die":
        sys.exit(1)
    if trick == "bad-input":
        say(event="error", kind="BadInput", message="the binlog is gone", hint="take a backfill")
        sys.exit(1)
    if trick == "exit-3":
        sys.exit(3)
    log = Log.open(state_dir / "log")
    say(event="ready")
    made = state_dir / "made"
    if not made.exists():
        for pending in [log.append(b"rows") for _ in range(source.get("entries", 0))]:
            pending.result(10)
        made.touch()
    say(event="progress", position={"file": "binlog.000001", "pos": 4}, commit_ts=commit_ts_of(5), lag_ms=1500)
    if settings["until"] == "now":
        say(event="caught-up", log_end=str(log.end()))
        log.close()
        return
    if trick == "more":  # one entry each time the file is there, which then goes
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            if (state_dir / "more").exists():
                log.append(b"rows").result(10)
                (state_dir / "more").unlink()
    wait_for_the_end(trick)
    log.close()
    note(state_dir, "capture stopped")


if __name__ == "__main__":
    main()
