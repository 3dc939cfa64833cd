"""What a publish brings, looked at before anything is changed: order, epochs, open files; and the barrier of a statement."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from penstock.delivery.barrier import Barrier, Scope, depends_on_others, scope_of
from penstock.delivery.dispatcher import Dispatcher
from penstock.delivery.payload import Payload, PayloadItem, dispatcher_id
from penstock.delivery.replays.outside import Outside
from penstock.delivery.spool import DrainMarkerItem, SpoolItem
from penstock.delivery.writer import Writer
from penstock.errors import BadInput, PenstockError, StaleRun, Terminal, Unavailable
from penstock.log.position import Seq


@dataclass(slots=True)
class PublishStats:
    """Counted since the process started."""

    ranges_published: int = 0
    payloads_published: int = 0
    payloads_behind_progress: int = 0
    payloads_replayed: int = 0
    dead_letters: int = 0

    def published(self, payloads: int, behind: int) -> None:
        self.ranges_published += 1
        self.payloads_published += payloads
        self.payloads_behind_progress += behind


def check_order(writer: Writer, outside: Outside, rejoin: Collection[str], payloads: Sequence[Payload]) -> None:
    """Refuses payloads of regular ranges that would break the order or an open intent."""
    reached: dict[str, Seq] = {}
    latest = 0
    for payload in payloads:
        known = writer.dispatchers.get(payload.dispatcher)
        if known is not None:
            _check_names(known, payload)
            if outside.counts(payload.dispatcher, payload.epoch, known.epoch, rejoin):
                _check_edges(known, payload)
        _check_follows(reached, payload)
        if payload.kind == "ddl" and (scope := scope_of([payload])) is not None and latest >= payload.last_commit_ts:
            raise BadInput(
                f"publish: rows at {latest} come before {scope.name} at {payload.last_commit_ts}, which would drain them",
                hint="nothing was published; a task ends every payload at a DDL",
            )
        latest = max(latest, payload.last_commit_ts if payload.kind == "data" else 0)


def check_together(writer: Writer, outside: Outside, rejoin: Collection[str], payloads: Sequence[Payload]) -> None:
    """Refuses a statement whose tables depend on each other while one of them replays: that one would go on beyond the
    statement, which waits for it, and rows of after a DROP DATABASE would be at the sink before it. A new run brings all of
    them to it together."""
    for kind, group in groupby(payloads, key=_statement):
        statement = list(group) if kind[0] == "ddl" else []
        scope = scope_of(statement) if statement else None
        if scope is None or not scope.strict:
            continue
        concerned = {each.id for each in _concerned(writer, scope)} | {payload.dispatcher for payload in statement}
        if behind := [each for each in sorted(concerned - set(rejoin)) if outside.replays(each)]:
            raise StaleRun(
                f"publish: {scope.name} concerns several tables, and {is_away(writer, behind[0]).message}",
                hint="begin a new run",
            )


def check_replay(writer: Writer, outside: Outside, payloads: Sequence[Payload]) -> None:
    """The same of extra ranges. A statement that concerns other tables too cannot be delivered for one that is behind them:
    a new run brings all of them to it together."""
    reached: dict[str, Seq] = {}
    for payload in payloads:
        known = writer.dispatchers.get(payload.dispatcher)
        if known is None or not outside.takes(payload.dispatcher, payload.epoch):
            continue
        _check_names(known, payload)
        _check_edges(known, payload)
        _check_follows(reached, payload)
        if payload.kind == "ddl" and depends_on_others(payload):
            raise StaleRun(
                f"publish: {payload} is a statement of several tables, and one replays", hint="begin a new run"
            )


def _check_follows(reached: dict[str, Seq], payload: Payload) -> None:
    before = reached.get(payload.dispatcher)
    if before is not None and payload.first_seq <= before:
        raise BadInput(f"publish: {payload} comes after {before}", hint="payloads of a range go by seq")
    reached[payload.dispatcher] = payload.last_seq


def _check_names(known: Dispatcher, payload: Payload) -> None:
    if (payload.schema, payload.table) != (known.schema, known.table):
        raise BadInput(f"publish: {payload} names the dispatcher of {known.schema}.{known.table}")


def _check_edges(known: Dispatcher, payload: Payload) -> None:
    for what, edge in (("progress", known.enqueued), ("the open file", known.barrier)):
        if edge is not None and payload.first_seq <= edge < payload.last_seq:
            raise BadInput(
                f"publish: {payload} straddles {what} at {edge}",
                hint="nothing was published; a task cuts its payloads at the resume table",
            )


def set_barrier(
    writer: Writer, outside: Outside, statement: Sequence[PayloadItem], queues: dict[str, list[SpoolItem]]
) -> list[tuple[Barrier, str]]:
    """Ties together the dispatchers that the statement concerns; those that it does not name get a marker. Returns those that
    cannot come to it, because they are outside: the barrier fails at them, once everybody else has what is theirs."""
    scope = scope_of(item.payload for item in statement)
    if scope is None:
        return []
    delivers = {item.dispatcher for item in statement}
    drains = {each.id for each in _concerned(writer, scope)} - delivers
    if len(drains) + len(delivers) < 2:
        return []
    barrier = Barrier(
        scope.name,
        drains=drains,
        delivers=delivers,
        strict=scope.strict,
        wake=writer.wake,
        missed=outside.missed.add,
    )
    seq, commit_ts = str(statement[0].payload.last_seq), statement[0].payload.last_commit_ts
    away = {identity for identity in delivers | drains if outside.is_outside(identity)}
    for identity in (delivers | drains) - away:
        writer.dispatchers[identity].barriers[seq] = barrier
    for item in statement:
        item.on_drop = partial(barrier.failed, item.dispatcher)
    for identity in sorted(drains - away):
        marker = DrainMarkerItem(identity, partial(barrier.acked, identity), commit_ts, seq)
        queues.setdefault(identity, []).append(marker)
    return [(barrier, identity) for identity in sorted(drains & away)]


def is_away(writer: Writer, identity: str) -> PenstockError:
    """Why a dispatcher that is outside does not come to a barrier."""
    dispatcher = writer.dispatchers[identity]
    return Unavailable(f"{dispatcher.schema}.{dispatcher.table} is {dispatcher.state}")


def _concerned(writer: Writer, scope: Scope) -> Iterator[Dispatcher]:
    """The dispatchers that a statement concerns, whether or not it changes them. A database that has nothing on its way is
    left out: every CREATE TABLE would wait for it."""
    if scope.schema is not None:
        yield from (each for each in writer.dispatchers.values() if each.schema == scope.schema)
    for schema, table in scope.also:
        each = writer.dispatchers.get(dispatcher_id(writer.sink.changefeed, schema, table))
        if each is not None and (table or each.progress != each.enqueued):
            yield each


def statement_of(item: PayloadItem) -> tuple[str, Any]:
    """Neighbours with equal results are the DDL payloads of one statement, or rows."""
    return _statement(item.payload)


def _statement(payload: Payload) -> tuple[str, Any]:
    return ("ddl", payload.last_seq) if payload.kind == "ddl" else ("data", None)


def leftover(changefeed: str) -> StaleRun:
    return StaleRun(f"{changefeed}: the payload is at the sink already, or of an attempt that does not count")


def check_all_go_on(writer: Writer) -> None:
    """Raises where a dispatcher did not write what it was given, and nobody asked for that."""
    for dispatcher in writer.stopped():
        raise Terminal(f"{dispatcher.schema}.{dispatcher.table} stopped: {dispatcher.stopped}")
    for dispatcher in (each for each in writer.left_out() if not each.asked_out):
        raise Unavailable(f"{dispatcher.schema}.{dispatcher.table} is left out: {dispatcher.left_out}")
