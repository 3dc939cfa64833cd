"""What tasks stage with delivery: an encoded payload of one dispatcher, or a DDL at its place in the dispatcher's
order.

A data payload holds whole rows of one table version and one date directory, in seq order. A DDL's `first_seq` and
`last_seq` are both the seq of the DDL. Messages are not trusted: one that contradicts itself is refused before anything
of it is kept.

The identity of a dispatcher is a function of names alone, so that every task computes it without asking anybody.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from penstock.delivery.spool import DataItem
from penstock.delivery.spool.items import ITEM_BYTES
from penstock.delivery.storage.layout import date_of
from penstock.errors import BadInput
from penstock.files import Buffer
from penstock.log.position import Position, Seq

DISPATCHER_ID_BYTES = 16
FIRST_EPOCH = 1  # of a dispatcher that the keeper does not know yet; the keeper creates it with the same epoch
PayloadKind = Literal["data", "ddl"]
Text = TypeVar("Text", str, str | None)


def dispatcher_id(changefeed: str, schema: str, table: str, split: int = 0) -> str:
    """32 hex digits: the first 16 bytes of SHA-256 over the NUL-joined names. MySQL names never hold a NUL."""
    joined = "\0".join((changefeed, schema, table, str(split)))
    return hashlib.sha256(joined.encode()).digest()[:DISPATCHER_ID_BYTES].hex()


@dataclass(frozen=True, slots=True, eq=False)
class Payload:
    """One staged message. The TableSchema JSON is the `body` of a DDL, and may accompany data as `table_schema`."""

    kind: PayloadKind
    dispatcher: str
    epoch: int
    schema: str
    table: str
    version: int
    date: str
    first_seq: Seq
    last_seq: Seq
    first_commit_ts: int
    last_commit_ts: int
    rows: int
    body: Buffer
    table_schema: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body)

    def __str__(self) -> str:
        return f"{self.schema}.{self.table} {self.first_seq} to {self.last_seq}"


PayloadItem = DataItem[Payload]


class SharedHeaders:
    """Makes spool items of payloads. What consecutive payloads of a dispatcher have in common is kept in memory once: a
    message brings names and the table's schema anew, which together may be much more than the rows.

    Not thread-safe: its owner holds a lock around every call.
    """

    def __init__(self) -> None:
        self._last: dict[str, Payload] = {}

    def item(self, payload: Payload, now: float) -> PayloadItem:
        """The item has the body, and its `payload` has all the rest. A DDL keeps its body and is never spilled."""
        body = payload.body
        ddl = payload.kind == "ddl"
        last = self._last.get(payload.dispatcher)
        overhead = ITEM_BYTES
        if not ddl:
            payload = replace(payload, body=b"")
        if last is not None:
            payload = replace(
                payload,
                dispatcher=last.dispatcher,
                schema=_same(last.schema, payload.schema),
                table=_same(last.table, payload.table),
                date=_same(last.date, payload.date),
                table_schema=_same(last.table_schema, payload.table_schema),
            )
        if payload.table_schema is not None and (last is None or payload.table_schema is not last.table_schema):
            overhead += len(payload.table_schema)
        if not ddl:
            self._last[payload.dispatcher] = payload
        return DataItem(
            payload.dispatcher,
            payload,
            body,
            payload.first_commit_ts,
            payload.last_commit_ts,
            now,
            pinned=ddl,
            overhead=overhead,
        )


def _same(known: Text, new: Text) -> Text:
    """The text that is in memory already, where both are equal."""
    return known if known == new else new


@dataclass(frozen=True, slots=True)
class StageKey:
    """Which attempt of which range of which run a payload belongs to, and its place in it. `extra`: of a range beside the
    regular ones, for dispatchers that replay."""

    run: str
    start: Position
    end: Position
    attempt: int
    ordinal: int
    extra: bool = False


def parse_stage(arguments: dict[str, Any], body: memoryview) -> tuple[StageKey, Payload]:
    """The `stage` message of `delivery.sock`. Raises `BadInput` that names the field."""
    try:
        key = StageKey(
            run=str(arguments["run"]),
            start=Position.parse(arguments["start"]),
            end=Position.parse(arguments["end"]),
            attempt=int(arguments["attempt"]),
            ordinal=int(arguments["ordinal"]),
            extra=arguments.get("extra") is True,
        )
        payload = Payload(
            kind=arguments["kind"],
            dispatcher=arguments["dispatcher"],
            epoch=int(arguments["epoch"]),
            schema=arguments["schema"],
            table=arguments["table"],
            version=int(arguments["version"]),
            date=arguments["date"] or "",
            first_seq=Seq.parse(arguments["first_seq"]),
            last_seq=Seq.parse(arguments["last_seq"]),
            first_commit_ts=int(arguments["first_commit_ts"]),
            last_commit_ts=int(arguments["last_commit_ts"]),
            rows=int(arguments["rows"]),
            body=body,
            table_schema=arguments.get("table_schema"),
        )
    except KeyError as error:
        raise BadInput(f"stage: the argument {error.args[0]!r} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"stage: an argument cannot be read: {error}") from error
    _check(payload)
    return key, payload


def _check(payload: Payload) -> None:
    if payload.kind not in ("data", "ddl"):
        raise BadInput(f"stage: kind {payload.kind!r} is neither data nor ddl")
    if len(payload.dispatcher) != 2 * DISPATCHER_ID_BYTES:
        raise BadInput(f"stage: {payload.dispatcher!r} is not a dispatcher id of {2 * DISPATCHER_ID_BYTES} hex digits")
    if payload.last_seq < payload.first_seq:
        raise BadInput(f"stage: payload {payload} ends before it starts")
    if payload.kind == "data":
        if payload.rows <= 0:
            raise BadInput(f"stage: payload {payload} says it has {payload.rows} rows")
        dates = {date_of(payload.first_commit_ts), date_of(payload.last_commit_ts)}
        if dates != {payload.date}:
            raise BadInput(
                f"stage: payload {payload} is for the date {payload.date} but its commit_ts are of {sorted(dates)}",
                hint="a payload holds rows of one date directory",
            )
    elif payload.first_seq != payload.last_seq:
        raise BadInput(f"stage: a DDL has one seq, not {payload}")
