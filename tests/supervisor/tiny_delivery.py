"""A delivery of a few lines for the supervisor's tests: holds ranges in memory until `flush` or `every_seconds`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import uuid
from pathlib import Path
from typing import Any

from penstock.delivery.payload import dispatcher_id
from penstock.errors import PenstockError, StaleRun
from penstock.wire import Client, Server, socket_path
from tests.supervisor.tiny_capture import answer_requests, note, say, trick_of, wait_for_the_end


class Delivery:
    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.incarnation = uuid.uuid4().hex
        self.control = Client(socket_path(state_dir / "run", "control"))
        self.lock = threading.Lock()
        self.run: dict[str, str] = {}
        self.waiting: dict[str, list[dict[str, Any]]] = {}
        self.paused: dict[str, bool] = {}

    def begin_run(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        with self.lock:
            self.run[arguments["changefeed"]] = arguments["run"]
            self.waiting[arguments["changefeed"]] = []
            self.paused[arguments["changefeed"]] = arguments["paused"]
        return {"incarnation": self.incarnation, "published_end": None}

    def publish(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        feed = arguments["changefeed"]
        with self.lock:
            if self.run.get(feed) != arguments["run"] or arguments["incarnation"] != self.incarnation:
                raise StaleRun("another run")
            dispatcher = dispatcher_id(feed, "shop", "orders")
            last = {dispatcher: {"seq": arguments["end"] + ":0:0", "schema": "shop", "table": "orders"}}
            self.control.call(
                "published",
                changefeed=feed,
                run=arguments["run"],
                start=arguments["start"],
                end=arguments["end"],
                commit_ts=int(arguments["end"].split(":")[1]) + 1,
                last=last,
            )
            self.waiting[feed].append({"dispatcher": dispatcher, **arguments})
            with (self.state_dir / "published.txt").open("a") as file:
                file.write(f"{os.getpid()} {arguments['end']}\n")
        return {"accepted": True}

    def pressure(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        with self.lock:
            if self.run.get(arguments["changefeed"]) != arguments["run"]:
                raise StaleRun("another run")
        return {"suppressed": self.paused.get(arguments["changefeed"], False)}

    def flush(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        feed = arguments["changefeed"]
        with self.lock:
            for one in self.waiting.get(feed, []):
                seq = one["end"] + ":0:0"
                path = f"CDC-{one['end']}"
                common = {
                    "changefeed": feed,
                    "run": one["run"],
                    "dispatcher": one["dispatcher"],
                    "epoch": 1,
                    "path": path,
                }
                first = one["start"] + ":0:0"
                self.control.call("intent", first_seq=first, last_seq=seq, length=10, checksum=1, rows=1, **common)
                self.control.call("done", seq=seq, **common)
                with (self.state_dir / "sink.txt").open("a") as file:
                    file.write(f"{one['start']} {one['end']}\n")
            self.waiting[feed] = []
        note(self.state_dir, "delivery flushed")
        return {}

    def pause(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        self.paused[arguments["changefeed"]] = arguments["paused"]
        return {}

    def status(self, _arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        return {"changefeeds": {}}


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    state_dir = Path(settings["state_dir"])
    feeds = list(settings["changefeeds"])
    options = next(iter(settings["changefeeds"].values()))
    trick = trick_of(state_dir, "delivery", options.get("tricks", []))
    if trick == "die":
        sys.exit(1)
    delivery = Delivery(state_dir)
    server = Server(
        socket_path(state_dir / "run", "delivery"),
        {
            "begin_run": delivery.begin_run,
            "publish": delivery.publish,
            "pressure": delivery.pressure,
            "flush": delivery.flush,
            "pause": delivery.pause,
            "status": delivery.status,
        },
    )
    say(event="ready")

    def flush_now_and_then(every: float) -> None:
        while True:
            threading.Event().wait(every)
            for feed in tuple(feeds):
                with contextlib.suppress(PenstockError):
                    delivery.flush({"changefeed": feed}, memoryview(b""))

    if options.get("every_seconds"):
        threading.Thread(target=flush_now_and_then, args=(options["every_seconds"],), daemon=True).start()
    if trick == "stubborn":
        wait_for_the_end(trick)

    def remove(feed: str) -> None:
        delivery.flush({"changefeed": feed}, memoryview(b""))
        feeds.remove(feed)
        note(state_dir, f"delivery removed {feed}")

    answer_requests({"add": feeds.append, "remove": remove})
    server.close()
    say(event="stopped", stage_seconds={"write": 0.5})
    note(state_dir, "delivery stopped")


if __name__ == "__main__":
    main()
