"""One DDL and all the dispatchers that it concerns: of a database as a whole, every table of it; of a rename, both names; of
a new table, its database and the model that it copies.

Each of them comes to its place in its own order: a DDL payload, or a drain marker where the statement says nothing of
that table itself. It has *arrived* once everything before that place is at the sink. When all have arrived, the DDL
payloads are delivered; when those are delivered, everybody goes on. So no row before the statement comes after it, and
none after it comes before.

Nobody blocks: a dispatcher that waits gives its thread back, and is woken. A dispatcher that fails, closes or is
discarded never lets a drain hang, and never lets its statement go anyway: where the tables depend on each other
(`strict`), the barrier has failed for all of them; else the others go on without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from penstock.delivery.payload import Payload
from penstock.delivery.spool import DrainMarkerItem, Spool
from penstock.errors import BadInput, PenstockError, Terminal, Unavailable, fresh
from penstock.schema.model import ChangeKind, DdlType, TableSchema

# Delivered half, these would leave a reader with tables that the source never had at the same time.
_DEPENDENT = frozenset({DdlType.DROP_SCHEMA, DdlType.RENAME_TABLE, DdlType.EXCHANGE_PARTITION})
_IN_DATABASE = frozenset({DdlType.CREATE_TABLE, DdlType.RENAME_TABLE})  # a table comes into a database


@dataclass(frozen=True, slots=True)
class Scope:
    """What one statement concerns beside the tables that it changes. `schema`: every table of that database. `also`: tables
    and databases, by name."""

    name: str
    schema: str | None
    strict: bool
    also: frozenset[tuple[str, str]] = frozenset()


def scope_of(payloads: Iterable[Payload]) -> Scope | None:
    """Of the DDL payloads of one statement. None where each of its tables goes by itself."""
    tables = []
    for payload in payloads:
        try:
            tables.append(TableSchema.from_json(bytes(payload.body)))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{payload}: its table schema cannot be read: {error!r}") from error
    database = next((table for table in tables if not table.table), None)
    strict = any(table.ddl_type in _DEPENDENT for table in tables)
    if database is not None:
        return Scope(_called(database), database.schema, strict)
    also = {(table.schema, "") for table in tables if table.ddl_type in _IN_DATABASE and table.columns}
    models = {name for table in tables if table.kind is ChangeKind.CREATE for name in _names(table.other)}
    strict = bool(models) or (strict and len(tables) > 1)
    return Scope(_called(tables[0]), None, strict, frozenset(also | models)) if strict or also else None


def _called(table: TableSchema) -> str:
    """The statement as messages call it. One that rules have changed has no text of its own."""
    return repr(table.query[:120]) if table.query else f"a statement that changes {table.name or table.schema}"


def depends_on_others(payload: Payload) -> bool:
    """Whether the DDL may only be delivered together with those of other tables, or after them: not in a replay of one."""
    table = TableSchema.from_json(bytes(payload.body))
    return table.ddl_type in _DEPENDENT or (table.kind is ChangeKind.CREATE and bool(table.other))


def _names(text: str) -> set[tuple[str, str]]:
    """What `schema.table` may stand for: either may have points of its own."""
    parts = text.split(".")
    return {(".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts))}


class BarrierFailed(Terminal):
    """A statement cannot be delivered, because another table that it concerns cannot take part."""


class Barrier:
    """Thread-safe. `wake` gets the dispatchers that have something to do now; `missed`, of a strict one, each that does not come
    to it. Both are called without any lock."""

    def __init__(
        self,
        name: str,
        *,
        drains: Collection[str],
        delivers: Collection[str],
        strict: bool,
        wake: Callable[[Collection[str]], None],
        missed: Callable[[str], None] = lambda _dispatcher: None,
    ) -> None:
        self._name = name
        self._all = frozenset(drains) | frozenset(delivers)
        self._missing = set(self._all)  # have not arrived
        self._undelivered = set(delivers)
        self._strict = strict
        self._wake = wake
        self._missed = missed
        self._error: PenstockError | None = None
        self._lock = threading.Lock()

    @property
    def complete(self) -> bool:
        """Everything before the statement is at the sink, of all its tables. Raises where one of them has failed."""
        self._check()
        return not self._missing

    @property
    def over(self) -> bool:
        """And the statement is at the sink too."""
        self._check()
        return not self._missing and not self._undelivered

    def arrive(self, dispatcher: str) -> None:
        self._forget(dispatcher, self._missing)

    def delivered(self, dispatcher: str) -> None:
        self._forget(dispatcher, self._undelivered)

    def failed(self, dispatcher: str, error: PenstockError) -> None:
        """The dispatcher will not come to its place in this run, or not beyond it."""
        with self._lock:
            if dispatcher not in self._missing | self._undelivered:
                return
            if self._strict:
                self._error = self._error or error
            else:
                self._missing.discard(dispatcher)
                self._undelivered.discard(dispatcher)
        if self._strict:
            self._missed(dispatcher)
        self._wake(self._all)

    def acked(self, dispatcher: str, error: PenstockError | None) -> None:
        """The ack of the dispatcher's marker."""
        if error is not None:
            self.failed(dispatcher, error)
        else:
            self.arrive(dispatcher)

    def _forget(self, dispatcher: str, left: set[str]) -> None:
        with self._lock:
            last = left == {dispatcher}
            left.discard(dispatcher)
        if last:
            self._wake(self._all)

    def _check(self) -> None:
        if self._error is not None:
            raise BarrierFailed(f"{self._name} cannot be delivered: {self._error.message}", hint=self._error.hint)


class Wait(Enum):
    """What a dispatcher waits for at a DDL. A barrier wakes it; the keeper is asked again."""

    NOTHING = 0
    BARRIER = 1
    KEEPER = 2


class Marks:
    """Counts finished drain markers, of a flush on request."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self._error: PenstockError | None = None
        self._condition = threading.Condition()

    @classmethod
    def behind(cls, spool: Spool, dispatchers: Collection[str]) -> Marks:
        """A marker behind everything that each of them has in its queue."""
        marks = cls(len(dispatchers))
        for identity in dispatchers:
            spool.enqueue(identity, [DrainMarkerItem(identity, marks.one_finished)])
        return marks

    def one_finished(self, error: PenstockError | None) -> None:
        with self._condition:
            self._left -= 1
            self._error = self._error or error
            self._condition.notify_all()

    def wait(self, timeout_seconds: float | None) -> None:
        with self._condition:
            if not self._condition.wait_for(lambda: self._left == 0 or self._error is not None, timeout_seconds):
                raise Unavailable(f"{self._left} tables are not at the sink after {timeout_seconds:g} s")
            if self._error is not None:
                raise fresh(self._error)
