"""What keeps entries of a log from being trimmed: its durable cursors and its pins, as the metadata store knows them.

    cursor/<log>/<name>  {"uuid", "mark_delete": "L:E", ...}: entries after it are needed (older: the uuid alone, all is)
    pin/<log>/<name>     {"position": "L:E"}: entries at and after it are needed
    holds/<log>          a counter: every transaction that makes a hold, or moves one back, changes it

A trim checks the counter and changes the ledger list in one transaction; whoever makes a hold changes the counter and
checks the ledger list in one. So one of the two loses, and looks again. A hold that moves forward needs no transaction:
an old position only keeps more.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.errors import BadInput, Unavailable
from penstock.log.position import Position
from penstock.metadata import Check, Create, Delete, MetadataStore, Operation, Put, VersionConflict

_ATTEMPTS = 50


class Hold(NamedTuple):
    """Entries after `after` are needed by the cursor or pin `name`."""

    kind: str
    name: str
    after: Position


class Holds(NamedTuple):
    """All holds of a log, and the operation that proves, inside a transaction, that no other was made since."""

    holds: tuple[Hold, ...]
    unchanged: Operation


def log_list_key(log_name: str) -> str:
    """Where the ledger list of a log is."""
    return f"log/{log_name}"


def cursor_key(log_name: str, cursor_name: str) -> str:
    return f"cursor/{log_name}/{cursor_name}"


def pin_key(log_name: str, pin_name: str) -> str:
    return f"pin/{log_name}/{pin_name}"


def holds_key(log_name: str) -> str:
    return f"holds/{log_name}"


def read_holds(metadata: MetadataStore, log_name: str) -> Holds:
    """Every hold, no older than the counter that `unchanged` names."""
    counter = metadata.get(holds_key(log_name))
    found: list[Hold] = []
    for kind in ("cursor", "pin"):
        prefix = f"{kind}/{log_name}/"
        for key, value in metadata.entries(prefix):
            found.append(Hold(kind, key.removeprefix(prefix), _after(kind, value.value)))
    return Holds(tuple(found), Check(holds_key(log_name), counter.version if counter else 0))


def holds_changed(metadata: MetadataStore, log_name: str) -> Operation:
    """Goes into each transaction that makes a hold or moves one back."""
    counter = metadata.get(holds_key(log_name))
    if counter is None:
        return Create(holds_key(log_name), b"1")
    return Put(holds_key(log_name), b"%d" % (int(counter.value) + 1), counter.version)


def put_pin(metadata: MetadataStore, log_name: str, name: str, position: Position) -> None:
    """Entries at and after `position` stay until the pin goes; a pin of that name moves. Durable when it returns.

    Raises `BadInput` where the position was trimmed already.
    """
    for _ in range(_ATTEMPTS):
        listed = metadata.get(log_list_key(log_name))
        if listed is None:
            raise Unavailable(f"there is no log {log_name} yet")
        first = json.loads(listed.value)["trimmed_below"]
        if position.ledger_id < first:
            raise BadInput(f"the log has no entry {position} any more", hint=f"it starts at {first}:0")
        key, value = pin_key(log_name, name), json.dumps({"position": str(position)}).encode()
        old = metadata.get(key)
        operation = Put(key, value, old.version) if old else Create(key, value)
        try:
            metadata.transaction(
                [operation, holds_changed(metadata, log_name), Check(log_list_key(log_name), listed.version)]
            )
        except VersionConflict:
            continue  # a trim or another hold came first: look again
        return
    raise Unavailable(f"pin {name} of log {log_name}: others change the log all the time", hint="try again")


def remove_pin(metadata: MetadataStore, log_name: str, name: str) -> None:
    """Fine if it is not there."""
    for _ in range(_ATTEMPTS):
        old = metadata.get(pin_key(log_name, name))
        if old is None:
            return
        try:
            metadata.transaction([Delete(pin_key(log_name, name), old.version)])
        except VersionConflict:
            continue
        return
    raise Unavailable(f"pin {name} of log {log_name}: others change it all the time", hint="try again")


def pins(metadata: MetadataStore, log_name: str) -> dict[str, Position]:
    return {
        hold.name: Position(hold.after.ledger_id, hold.after.entry_id + 1)
        for hold in read_holds(metadata, log_name).holds
        if hold.kind == "pin"
    }


def _after(kind: str, raw: bytes) -> Position:
    try:
        document = json.loads(raw)
    except ValueError:
        return Position(0, -1)  # written by the first version, which knew no positions: all of the log is needed
    text = document.get("mark_delete" if kind == "cursor" else "position") if isinstance(document, dict) else None
    if text is None:
        return Position(0, -1)
    position = Position.parse(text)
    return position if kind == "cursor" else Position(position.ledger_id, position.entry_id - 1)
