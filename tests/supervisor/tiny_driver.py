"""A driver of a few lines for the supervisor's tests: publishes the log in ranges of three entries, without Spark.

A changefeed fails for good where there is a file `fail-NAME`; nothing is published while there is a file `long-batch`. Requests of the run are answered as the real one does.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, StaleRun
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.wire import Client, socket_path
from tests.supervisor.tiny_capture import answer_requests, note, say, trick_of, wait_for_the_end


def publish_forever(state_dir: Path, feed: str, stop: threading.Event) -> None:
    control = Client(socket_path(state_dir / "run", "control"))
    delivery = Client(socket_path(state_dir / "run", "delivery"))
    begun: dict[str, Any] | None = None
    at = Position(0, 0)
    while not stop.wait(0.05):
        say(event="metrics", text="")
        if (state_dir / f"fail-{feed}").exists():
            say(event="failed", changefeed=feed, code=4, kind="Terminal", message="the sink refuses", hint="ask it why")
            return
        try:
            if begun is None:
                begun = control.call("begin_run", changefeed=feed)
                at = Position.parse(begun["start"])
            delivery.call("pressure", changefeed=feed, run=begun["run"])
            if (state_dir / "long-batch").exists():
                continue
            reader = LogReader.open(state_dir / "log")
            while reader.end() >= at and not stop.is_set():
                if delivery.call("pressure", changefeed=feed, run=begun["run"])["suppressed"]:
                    break
                positions = [entry.position for entry in reader.read(at, reader.end())][:3]
                end = positions[-1]
                delivery.call(
                    "publish",
                    changefeed=feed,
                    run=begun["run"],
                    incarnation=begun["incarnation"],
                    start=str(at),
                    end=str(end),
                )
                at = Position(end.ledger_id, end.entry_id + 1)
            reader.close()
        except StaleRun:
            begun = None
        except PenstockError as error:
            print(error, file=sys.stderr, flush=True)
            begun = None


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    state_dir = Path(settings["state_dir"])
    trick = trick_of(state_dir, "driver", settings["spark"].get("tricks", []))
    if trick == "die":
        sys.exit(1)
    while trick == "slow" and not (state_dir / "go").exists():
        time.sleep(0.02)
    feeds: dict[str, tuple[threading.Thread, threading.Event]] = {}

    def add(feed: str) -> None:
        stop = threading.Event()
        thread = threading.Thread(target=publish_forever, args=(state_dir, feed, stop), daemon=True)
        feeds[feed] = thread, stop
        thread.start()

    def remove(feed: str) -> None:
        thread, stop = feeds.pop(feed)
        stop.set()
        thread.join(5)
        note(state_dir, f"driver removed {feed}")

    for feed in settings["changefeeds"]:
        add(feed)
    say(event="ready")
    if trick == "stubborn":
        wait_for_the_end(trick)
    answer_requests({"add": add, "remove": remove, "begin_again": lambda feed: note(state_dir, f"again {feed}")})
    for feed in list(feeds):
        feeds[feed][1].set()
    for thread, _ in feeds.values():
        thread.join(5)
    note(state_dir, "driver stopped")


if __name__ == "__main__":
    main()
