"""A keeper whose memory survives the delivery under test, with the promises of the real one.

`hook(name)` runs before and after each durable step, so that a test can crash there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.delivery.keeper_client import DispatcherStart, Intent, LastRow
from penstock.errors import Fenced, StaleRun, Terminal
from penstock.log.position import Position, Seq
from penstock.wire import Handler


@dataclass
class Range:
    start: Position
    end: Position
    commit_ts: int
    last: dict[str, Seq]


@dataclass
class MemoryKeeper:
    facts: dict[str, DispatcherStart] = field(default_factory=dict)
    mark_delete: Position | None = None
    run: str | None = None
    checkpoint_ts: int = 0
    calls: list[tuple[str, Any]] = field(default_factory=list)
    hook: Callable[[str], None] = lambda _name: None
    ranges: list[Range] = field(default_factory=list)
    point: dict[str, Any] | None = None
    schemas: str = "[]"
    published_end: Position = field(default_factory=lambda: Position(1, -1))
    not_yet: int = 0  # how often `drained` says no
    lock: Any = field(default_factory=threading.RLock)

    def begin_run(self, run: str) -> dict[str, dict[str, Any]]:
        with self.lock:
            self.run, self.ranges = run, []
            self.published_end = self.mark_delete or Position(1, -1)
            return dict(self.facts)

    def published(
        self, changefeed: str, run: str, *, start: Position, end: Position, commit_ts: int, last: dict[str, LastRow]
    ) -> None:
        with self.lock:
            self.calls.append(("published", (start, end)))
            if self.run is not None and run != self.run:
                raise StaleRun("over")
            if self.ranges and end <= self.ranges[-1].end:
                return
            self.published_end = end
            for dispatcher, each in last.items():
                self.facts.setdefault(dispatcher, DispatcherStart(1, each.schema, each.table, None, None, None))
            self.ranges.append(Range(start, end, commit_ts, {d: x.seq for d, x in last.items()}))
            self._ack()
        self.hook("after published")

    def intent(
        self, changefeed: str, run: str, dispatcher: str, epoch: int, intent: Intent, *, replaces: bool = False
    ) -> None:
        self.hook("before intent")
        with self.lock:
            self.calls.append(("intent", intent))
            facts = self._owned(run, dispatcher, epoch)
            if (
                facts.intent is not None
                and facts.intent != intent
                and not (replaces and facts.intent.same_rows(intent))
            ):
                raise Terminal(f"{facts.intent} is open")
            if facts.progress is not None and intent.first_seq <= facts.progress:
                raise Terminal(f"{intent} is not after {facts.progress}")
            if facts.intent != intent:
                self.facts[dispatcher] = replace(facts, intent=intent.replacing(facts.intent))
        self.hook("after intent")

    def done(self, changefeed: str, run: str, dispatcher: str, epoch: int, seq: Seq, *, path: str | None) -> int:
        self.hook("before progress")
        with self.lock:
            facts = self._owned(run, dispatcher, epoch)
            self.calls.append(("done", (seq, path)))
            if facts.progress is None or seq > facts.progress:
                if (facts.intent.path if facts.intent else None) != path:
                    raise Terminal(f"{path} is not the open {facts.intent}")
                self.facts[dispatcher] = replace(
                    facts, progress=seq, intent=None, last_path=path if path is not None else facts.last_path
                )
        self.hook("after progress")
        with self.lock:
            self._ack()
        self.hook("after cursor")
        return self.checkpoint_ts

    def drained(self, changefeed: str, run: str, dispatcher: str, seq: Seq) -> bool:
        with self.lock:
            self.calls.append(("drained", seq))
            self._owned(run, dispatcher, self.facts[dispatcher].epoch)
            if self.facts[dispatcher].intent is not None:
                raise Terminal("an intent is open")
            if self.not_yet:
                self.not_yet -= 1
                return False
        self.hook("after drained")
        return True

    def begin_replay(self, run: str, dispatchers: list[str]) -> dict[str, tuple[Position, DispatcherStart]]:
        """As the real one: epoch + 1, and the oldest range that waits for each."""
        with self.lock:
            if run != self.run or any(self.facts[each].left_out for each in dispatchers):
                raise StaleRun("over")
            found = {}
            for each in dispatchers:
                facts = self.facts[each] = replace(self.facts[each], epoch=self.facts[each].epoch + 1)
                waiting = [
                    one.start
                    for one in self.ranges
                    if each in one.last and (facts.progress is None or one.last[each] > facts.progress)
                ]
                end = self.published_end
                found[each] = (waiting[0] if waiting else Position(end.ledger_id, end.entry_id + 1), facts)
            return found

    def dispatchers(self, changefeed: str) -> dict[str, DispatcherStart]:
        with self.lock:
            return dict(self.facts)

    def checkpoint(self, changefeed: str) -> int:
        return self.checkpoint_ts

    def recovery_point(self, changefeed: str, known: str) -> dict[str, Any]:
        text = self.schemas if self.point is not None and self.point["schemas"] != known else None
        return {"point": self.point, "schemas": text}

    def _owned(self, run: str, dispatcher: str, epoch: int) -> DispatcherStart:
        if self.run is not None and run != self.run:
            raise Fenced(f"run {run} is over")
        facts = self.facts[dispatcher]
        if facts.epoch != epoch:
            raise Fenced(f"epoch {epoch} is not {facts.epoch}")
        return facts

    def _ack(self) -> None:
        while self.ranges and all(
            (p := self.facts[d].progress) is not None and seq <= p for d, seq in self.ranges[0].last.items()
        ):
            done = self.ranges.pop(0)
            self.mark_delete = done.end
            self.checkpoint_ts = max(self.checkpoint_ts, done.commit_ts)

    def handlers(self) -> dict[str, Handler]:
        """The same over a socket, for a real delivery process."""
        return {
            "published": self._serve_published,
            "intent": lambda a, _: (
                self.intent(
                    a["changefeed"],
                    a["run"],
                    a["dispatcher"],
                    a["epoch"],
                    Intent.from_json(a),
                    replaces=a["replaces"],
                )
                or {}
            ),
            "done": lambda a, _: {
                "checkpoint_ts": self.done(
                    a["changefeed"], a["run"], a["dispatcher"], a["epoch"], Seq.parse(a["seq"]), path=a["path"]
                )
            },
            "drained": lambda a, _: {
                "drained": self.drained(a["changefeed"], a["run"], a["dispatcher"], Seq.parse(a["seq"]))
            },
            "dispatchers": lambda a, _: {
                "facts": {
                    d: {
                        "epoch": f.epoch,
                        "schema": f.schema,
                        "table": f.table,
                        "progress": str(f.progress) if f.progress else None,
                        "last_path": f.last_path,
                        "intent": f.intent.to_json() if f.intent else None,
                    }
                    for d, f in self.dispatchers(a["changefeed"]).items()
                }
            },
            "recovery_point": lambda a, _: self.recovery_point(a["changefeed"], a["known"]),
            "checkpoint": lambda a, _: {"checkpoint_ts": self.checkpoint_ts, "mark_delete": str(self.mark_delete)},
        }

    def _serve_published(self, a: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        self.published(
            a["changefeed"],
            a["run"],
            start=Position.parse(a["start"]),
            end=Position.parse(a["end"]),
            commit_ts=a["commit_ts"],
            last={d: LastRow(Seq.parse(x["seq"]), x["schema"], x["table"]) for d, x in a["last"].items()},
        )
        return {}
