"""Loads that begin while a log is there already: what `penstock backfill` asks for, and tables that are chosen later.

A load needs the table's version in the log. Where the log knows it, the load begins at once. Where it does not, the
definition is asked of the server, with a position at which it holds; it is recorded once the stream has passed that, if
no statement came meanwhile: else it is asked for again. What a load is waiting for is durable, like the load.

Tables that are chosen later (the configuration takes them now, and did not at the last start) are hidden until their
version is in the log: their rows of before then lie in the log without one, and nobody reads them. The load reads the
tables as they are after that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.capture.load.initial_load import InitialLoad
from penstock.capture.load.request import Backfill
from penstock.capture.recorder import Recorder
from penstock.capture.schemas import SchemaTracker
from penstock.clock import Clock
from penstock.errors import BadInput, Unavailable
from penstock.patterns import matches
from penstock.sources.load import ARRIVED, Loadable, LoadPlan, Name, TableLoad, has_passed
from penstock.sources.position import SourcePosition
from penstock.sources.settings import LoadScope, Tables
from penstock.sources.source import cannot_load

_AGAIN_SECONDS = 1.0  # between two questions for the same definitions
_GONE = "it is gone"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Definitions that were asked of the server; `statements`: how many the tracker had seen by then."""

    plan: LoadPlan
    statements: int


class LoadBeginnings:
    """For the thread of the capture loop. `scope`: the tables that are loaded by themselves; None where none is."""

    def __init__(
        self,
        load: InitialLoad,
        source: Loadable,
        recorder: Recorder,
        schemas: SchemaTracker,
        *,
        tables: Tables,
        scope: LoadScope | None,
        clock: Clock,
    ) -> None:
        self._load = load
        self._source = source
        self._recorder = recorder
        self._schemas = schemas
        self._tables = tables
        self._scope = scope
        self._clock = clock
        self._asked: _Asked | None = None
        self._again_at = 0.0
        for name, one in load.waiting.items():
            if one.joins:
                schemas.hide(*name)

    # -- tables that are chosen later ------------------------------------------------------------------------------

    def choose(self) -> None:
        """Begins the loads of tables that the last start did not choose, and ends those of tables that it chose and this one
        does not. Before the stream is read; raises `SourceError` where one cannot be loaded, and then nothing was begun."""
        before, now = self._recorder.scope, self._scope
        if now is None:
            if before is not None and self._tables not in before.filters:
                narrower = LoadScope(filters=(*before.filters, self._tables))
                self._load.begin(self._left_out(narrower), scope=narrower)
            return
        if before == now:
            return
        loads = self._recorder.loads

        def is_new(schema: str, table: str) -> bool:
            known = before.matches(schema, table) if before else loads.get((schema, table)) is not None
            return now.matches(schema, table) and not known and not self._load.is_loading(schema, table)

        plan = self._source.plan_loads(is_new, self._schemas.in_force)
        if plan.refused:
            raise cannot_load(plan.refused)
        left_out = self._left_out(now)
        begun = self._begin(plan, scope=now, joins=True, ended=left_out)
        for name in left_out:
            _logger.info("%s is left out now: what is not loaded of it is not loaded", ".".join(name))
        for name in begun:
            _logger.info("%s is chosen now, and was not at the last start: its rows are loaded", ".".join(name))

    def _left_out(self, scope: LoadScope) -> dict[Name, TableLoad]:
        """The loads under way of tables that are not chosen any more. They are over: should such a table be chosen again, what
        was loaded of it may be old by then."""
        return {
            (str(name[0]), str(name[1])): replace(load, done=True, note="left out")
            for name, load in self._recorder.loads.items()
            if not load.done and not load.backfill and not scope.matches(str(name[0]), str(name[1]))
        }

    # -- what a user asks for --------------------------------------------------------------------------------------

    def backfill(self, asked: Backfill) -> dict[str, Any]:
        """Begins the loads; they are durable when it returns. What was begun, and what the patterns took and is not loaded.
        Raises `BadInput` where a table that is named cannot be loaded, or nothing can be. Only between transactions."""
        refused: dict[Name, str] = {}

        def wanted(schema: str, table: str) -> bool:
            if not (asked.matches(schema, table) and self._schemas.is_chosen(schema, table)):
                return False
            if self._load.is_loading(schema, table):
                refused[schema, table] = "it is being loaded already"
                return False
            return True

        plan = self._source.plan_loads(wanted, self._schemas.in_force, asked.where)
        refused |= plan.refused
        self._check(asked, plan.loads, refused)
        begun = self._begin(plan, backfill=True)
        for name in begun:
            _logger.info("backfill of %s%s", ".".join(name), f" where {asked.where}" if asked.where else "")
        return {
            "tables": [{"table": ".".join(name), "estimate": load.estimate} for name, load in sorted(begun.items())],
            "refused": [{"table": ".".join(name), "reason": reason} for name, reason in sorted(refused.items())],
            "begun_ms": max(load.begun_ms for load in begun.values()),
        }

    def _check(self, asked: Backfill, loads: Mapping[Name, TableLoad], refused: Mapping[Name, str]) -> None:
        hint = "nothing was begun; `penstock status` shows what is being loaded"
        for name, reason in refused.items():
            if asked.names(*name) or not loads:
                raise BadInput(f"{'.'.join(name)} cannot be loaded: {reason}", hint=hint)
        for pattern in asked.tables:
            if not any(matches(".".join(name), pattern) for name in (*loads, *refused)):
                raise BadInput(
                    f"{pattern} is no table of the source that this flow follows",
                    hint="nothing was begun; names are schema.table, with * and ?, of those that source.tables takes",
                )

    # -- tables that the log does not know yet ---------------------------------------------------------------------

    def is_due(self, passed: SourcePosition) -> bool:
        """Whether `step` has something to do."""
        if not self._load.waiting:
            return False
        if self._asked is None:
            return self._clock.monotonic() >= self._again_at
        place = self._asked.plan.position
        return has_passed(passed, place) or place.source != passed.source

    def step(self, passed: SourcePosition) -> bool:
        """Records the definitions that the stream has passed, or asks for them. Whether tables are followed from here on
        that were not. Only between transactions, when everything before `passed` is appended."""
        if not self.is_due(passed):
            return False
        asked, self._asked = self._asked, None
        if asked is None or asked.statements != self._schemas.statements or asked.plan.position.source != passed.source:
            self._ask()
            return False
        plan = asked.plan
        found: dict[Name, TableLoad] = {}
        for name, waiting in self._load.waiting.items():
            found[name] = self._found(name, waiting, plan)
        known = tuple(plan.versions[name] for name, load in found.items() if not load.done and name in plan.versions)
        self._load.begin(found, versions=known)
        for name, load in found.items():
            self._schemas.show(*name)
            if load.done:
                _logger.warning("%s is not loaded: %s", ".".join(name), load.note)
        return True

    @staticmethod
    def _found(name: Name, waiting: TableLoad, plan: LoadPlan) -> TableLoad:
        planned = plan.loads.get(name)
        if planned is not None:
            return replace(waiting, key=planned.key, estimate=planned.estimate, note="")
        reason = plan.refused.get(name, _GONE)
        if reason != _GONE and not waiting.backfill and waiting.note != ARRIVED:
            raise cannot_load({name: reason})
        return replace(waiting, done=True, note=reason)

    def _ask(self) -> None:
        """Asks the server for the tables that wait; later again where it does not answer."""
        self._again_at = self._clock.monotonic() + _AGAIN_SECONDS
        statements, waiting = self._schemas.statements, self._load.waiting
        try:
            plan = self._source.plan_loads(lambda *name: name in waiting, self._schemas.in_force)
        except Unavailable as error:
            _logger.warning("the definitions of tables that are to be loaded are asked for again: %s", error.message)
            return
        self._asked = _Asked(plan, statements)

    def _begin(
        self,
        plan: LoadPlan,
        *,
        scope: LoadScope | None = None,
        backfill: bool = False,
        joins: bool = False,
        ended: Mapping[Name, TableLoad] | None = None,
    ) -> Mapping[Name, TableLoad]:
        begun_ms = self._clock.wall_ms()
        begun: dict[Name, TableLoad] = {}
        for name, load in plan.loads.items():
            known = name not in plan.versions
            begun[name] = replace(
                load, key=load.key if known else (), begun_ms=begun_ms, backfill=backfill, joins=joins and not known
            )
            if begun[name].joins:
                self._schemas.hide(*name)
        if begun or scope is not None:
            self._load.begin({**(ended or {}), **begun}, scope=scope)
        return begun
