"""What delivery asks of the keeper, and the client that asks it over `control.sock`.

When a call returns, its effect is durable at the keeper. `Unavailable` means that the outcome is unknown: every call
may be repeated with the same arguments, and the keeper answers a repetition as it answered the first call.
"""

from __future__ import annotations

import queue
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from penstock.errors import Unavailable
from penstock.log.position import Position, Seq
from penstock.wire import Client

_IDLE_CONNECTIONS_MAX = 8
_EARLIER_MAX = 16


@dataclass(frozen=True, slots=True)
class Intent:
    """A promise to write exactly one file: binding once durable (docs/formats/intent.md). Equal ones have equal bytes."""

    path: str
    first_seq: Seq
    last_seq: Seq
    length: int
    checksum: int  # CRC32C of the file's bytes
    rows: int = field(default=0, compare=False)  # for the keeper's counts; not part of the promise
    # Length and checksum of those that this one replaced under its path, newest first: a put of them may still arrive.
    earlier: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def replacing(self, before: Intent | None) -> Intent:
        """This one in the place of `before`."""
        if before is None or before.path != self.path:
            return replace(self, earlier=())
        known = [each for each in before.promises if each != (self.length, self.checksum)]
        return replace(self, earlier=tuple(known[:_EARLIER_MAX]))

    @property
    def promises(self) -> tuple[tuple[int, int], ...]:
        """Length and checksum of every file that may come to the path: this one's first."""
        return ((self.length, self.checksum), *self.earlier)

    def promise_of(self, length: int, checksum: int) -> Intent | None:
        """The promise that such a file keeps: this one, or one that it replaced. None where it keeps none of them."""
        if (length, checksum) in self.promises:
            return replace(self, length=length, checksum=checksum)
        return None

    def same_rows(self, other: Intent) -> bool:
        """Whether both are for the same rows, with whatever bytes and name."""
        return (self.first_seq, self.last_seq, self.rows) == (other.first_seq, other.last_seq, other.rows)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Intent:
        return cls(
            path=str(value["path"]),
            first_seq=Seq.parse(value["first_seq"]),
            last_seq=Seq.parse(value["last_seq"]),
            length=int(value["length"]),
            checksum=int(value["checksum"]),
            rows=int(value.get("rows") or 0),
            earlier=tuple((int(length), int(checksum)) for length, checksum in value.get("earlier") or ()),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "first_seq": str(self.first_seq),
            "last_seq": str(self.last_seq),
            "length": self.length,
            "checksum": self.checksum,
            "rows": self.rows,
            **({"earlier": [list(each) for each in self.earlier]} if self.earlier else {}),
        }

    def __str__(self) -> str:
        return f"{self.path} [{self.first_seq} to {self.last_seq}, {self.length} bytes, checksum {self.checksum}]"


@dataclass(frozen=True, slots=True)
class DispatcherStart:
    """Where one dispatcher continues when a run begins: the part of the keeper's durable facts that delivery needs."""

    epoch: int
    schema: str
    table: str
    progress: Seq | None
    last_path: str | None
    intent: Intent | None
    left_out: bool = False  # somebody wants it so

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DispatcherStart:
        progress, intent = value.get("progress"), value.get("intent")
        return cls(
            epoch=int(value["epoch"]),
            schema=str(value["schema"]),
            table=str(value["table"]),
            progress=Seq.parse(progress) if progress else None,
            last_path=value.get("last_path") or None,
            intent=Intent.from_json(intent) if intent else None,
            left_out=bool(value.get("left_out_ms")),
        )


@dataclass(frozen=True, slots=True)
class LastRow:
    """The last row of a dispatcher in a published range."""

    seq: Seq
    schema: str
    table: str


class PauseWish(NamedTuple):
    """Whether a changefeed is to stand still. `number` grows with each change while its keeper is open: who is told twice, by
    a command and at the beginning of a run, goes by the larger one, whichever comes last."""

    paused: bool
    number: int


class KeeperApi(Protocol):
    """The keepers of all changefeeds as delivery sees them. `KeeperClient` is the implementation; tests have
    another."""

    def published(
        self, changefeed: str, run: str, *, start: Position, end: Position, commit_ts: int, last: dict[str, LastRow]
    ) -> None:
        """Delivery accepts this range. Returns once the new dispatchers in it and their epochs are durable."""
        ...

    def intent(
        self, changefeed: str, run: str, dispatcher: str, epoch: int, intent: Intent, *, replaces: bool = False
    ) -> None:
        """`replaces`: the open intent for the same rows gives way, if there is one: its file is not at the sink. Raises
        `Fenced`, as `done` and `drained` do, where another run has begun since."""
        ...

    def done(self, changefeed: str, run: str, dispatcher: str, epoch: int, seq: Seq, *, path: str | None) -> int:
        """Rows up to `seq` are at the sink. Returns the checkpoint_ts once progress is durable and the cursor acked
        after it."""
        ...

    def drained(self, changefeed: str, run: str, dispatcher: str, seq: Seq) -> bool:
        """Whether every dispatcher that the DDL at `seq` concerns has everything before it durably at the sink."""
        ...

    def dispatchers(self, changefeed: str) -> dict[str, DispatcherStart]: ...

    def checkpoint(self, changefeed: str) -> int:
        """The commit_ts of the last whole transaction at or before mark-delete."""
        ...

    def recovery_point(self, changefeed: str, known: str) -> dict[str, Any]:
        """A place of the source up to which everything is at the sink: {point, schemas}, each null where there is none; and
        `schemas` where they are the `known` ones (docs/formats/progress-object.md)."""
        ...


class KeeperClient:
    """The keepers behind `control.sock`. Threads never share a connection: a call takes an idle one or opens a new
    one."""

    def __init__(self, path: Path, *, timeout_seconds: float = 60.0) -> None:
        self._path = path
        self._timeout = timeout_seconds
        self._idle: queue.LifoQueue[Client] = queue.LifoQueue(_IDLE_CONNECTIONS_MAX)

    def published(
        self, changefeed: str, run: str, *, start: Position, end: Position, commit_ts: int, last: dict[str, LastRow]
    ) -> None:
        self._call(
            "published",
            changefeed=changefeed,
            run=run,
            start=str(start),
            end=str(end),
            commit_ts=commit_ts,
            last={d: {"seq": str(x.seq), "schema": x.schema, "table": x.table} for d, x in last.items()},
        )

    def intent(
        self, changefeed: str, run: str, dispatcher: str, epoch: int, intent: Intent, *, replaces: bool = False
    ) -> None:
        self._call(
            "intent",
            changefeed=changefeed,
            run=run,
            dispatcher=dispatcher,
            epoch=epoch,
            replaces=replaces,
            **intent.to_json(),
        )

    def done(self, changefeed: str, run: str, dispatcher: str, epoch: int, seq: Seq, *, path: str | None) -> int:
        answer = self._call(
            "done", changefeed=changefeed, run=run, dispatcher=dispatcher, epoch=epoch, seq=str(seq), path=path
        )
        return int(answer["checkpoint_ts"] or 0)

    def drained(self, changefeed: str, run: str, dispatcher: str, seq: Seq) -> bool:
        answer = self._call("drained", changefeed=changefeed, run=run, dispatcher=dispatcher, seq=str(seq))
        return bool(answer["drained"])

    def dispatchers(self, changefeed: str) -> dict[str, DispatcherStart]:
        facts = self._call("dispatchers", changefeed=changefeed)["facts"]
        return {dispatcher: DispatcherStart.from_json(value) for dispatcher, value in facts.items()}

    def checkpoint(self, changefeed: str) -> int:
        return int(self._call("checkpoint", changefeed=changefeed)["checkpoint_ts"] or 0)

    def recovery_point(self, changefeed: str, known: str) -> dict[str, Any]:
        return self._call("recovery_point", changefeed=changefeed, known=known)

    def close(self) -> None:
        while True:
            try:
                self._idle.get_nowait().close()
            except queue.Empty:
                return

    def _call(self, op: str, **arguments: Any) -> dict[str, Any]:
        try:
            client = self._idle.get_nowait()
        except queue.Empty:
            client = Client(self._path, timeout_seconds=self._timeout)
        try:
            answer = client.call(op, **arguments)
        except Unavailable:
            client.close()  # other idle connections are likely broken too; the next call on each finds out
            raise
        except BaseException:
            self._give_back(client)
            raise
        self._give_back(client)
        return answer

    def _give_back(self, client: Client) -> None:
        try:
            self._idle.put_nowait(client)
        except queue.Full:
            client.close()
