"""The maintainer: owner of a changefeed's dispatchers. It creates them, gives them epochs, and is the barrier of a DDL.

A dispatcher is created when the first range with rows of its table is published, at epoch 1, and is durable before the
publish is answered; so a dispatcher that is missing in the resume table has epoch 1. Tables are not split yet: a table
has one dispatcher, and the barrier of a DDL is the drain of that dispatcher.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.recovery_point import RecoveryPoints
from penstock.delivery.keeper_client import Intent, LastRow, PauseWish
from penstock.delivery.payload import dispatcher_id
from penstock.errors import BadInput
from penstock.log.position import Position, Seq

BeginRun = Callable[[str, str, PauseWish], dict[str, Any]]
"""(changefeed, run, whether it is paused) → delivery's answer to `begin_run`."""


class Maintainer:
    """The maintainer of one changefeed. Thread-safe."""

    def __init__(self, keeper: Keeper, begin_run_at_delivery: BeginRun) -> None:
        self.keeper = keeper
        self._begin_run_at_delivery = begin_run_at_delivery
        self._starting = threading.Lock()
        self._points = RecoveryPoints(keeper.reader)

    def begin_run(self) -> dict[str, Any]:
        """Begins a new run. Order: (1) delivery ends the older runs and their writes; (2) the keeper forgets their
        ranges; (3) the resume table is read, which only the new run changes from then on."""
        with self._starting:
            run = uuid.uuid4().hex
            answer = self._begin_run_at_delivery(self.keeper.name, run, self.keeper.pause_wish)
            start = self.keeper.begin_run(run)
            resume = {
                dispatcher: {
                    "epoch": facts.epoch,
                    "progress": str(facts.progress) if facts.progress is not None else None,
                    "intent_last_seq": str(facts.intent.last_seq) if facts.intent is not None else None,
                    "left_out": facts.left_out_ms > 0,
                }
                for dispatcher, facts in self.keeper.facts().items()
            }
            return {
                "run": run,
                "incarnation": answer["incarnation"],
                "start": str(start),
                "resume": resume,
                "settings": [version.to_json() for version in self.keeper.settings_versions],
            }

    def close(self) -> None:
        self._points.close()
        self.keeper.close()

    def recovery_point(self, known: str) -> dict[str, Any]:
        """A place of the source up to which the sink has everything (recovery_point.py): {point, schemas}; `schemas` is null
        where they are those that the caller knows, by their digest, and both are where there is no point now."""
        found = self._points.at(self.keeper.mark_delete, self.keeper.settings_versions)
        if found is None:
            return {"point": None, "schemas": None}
        point, text = found
        return {"point": point, "schemas": text if point["schemas"] != known else None}

    def begin_replay(self, run: str, dispatchers: Collection[str]) -> dict[str, dict[str, Any]]:
        """Dispatchers that were left out come back beside the run: where the replay of each starts, and its facts with its new
        epoch, which is durable."""
        found = self.keeper.begin_replay(run, dispatchers)
        return {each: {"start": str(start), "facts": facts.to_json()} for each, (start, facts) in found.items()}

    def published(self, run: str, start: Position, end: Position, commit_ts: int, last: Mapping[str, LastRow]) -> None:
        """Creates the dispatchers that are new, then hands the range to the keeper."""
        for dispatcher, row in last.items():
            if dispatcher != str(dispatcher_id(self.keeper.name, row.schema, row.table)):
                raise BadInput(f"{self.keeper.name}: {dispatcher} is not the dispatcher of {row.schema}.{row.table}")
        self.keeper.create({dispatcher: (row.schema, row.table) for dispatcher, row in last.items()})
        self.keeper.published(run, start, end, commit_ts, {dispatcher: row.seq for dispatcher, row in last.items()})

    def intent(self, run: str, dispatcher: str, epoch: int, intent: Intent, *, replaces: bool = False) -> None:
        self.keeper.intent(dispatcher, epoch, intent, run=run, replaces=replaces)

    def done(self, run: str, dispatcher: str, epoch: int, seq: Seq, path: str | None) -> int:
        return self.keeper.done(dispatcher, epoch, seq, path, run=run)

    def drained(self, run: str, dispatcher: str, seq: Seq) -> bool:
        """Whether the DDL at `seq` may go to the sink: every row of its tables before it is durably there."""
        return self.keeper.drained(dispatcher, seq, run=run)
