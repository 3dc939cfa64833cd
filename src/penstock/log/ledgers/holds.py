"""What keeps entries of a log from being trimmed: its durable cursors and its pins, as the metadata store knows them.

    cursor/<log>/<name>  {"uuid", "mark_delete": "L:E", ...}: entries after the position are needed
    pin/<log>/<name>     {"position": "L:E"}: entries at and after the position are needed
    holds/<log>          a counter: every transaction that makes a hold, or moves one back, changes it

A trim changes the ledger list and checks the counter in one transaction; making a hold changes the counter and checks the
ledger list in one transaction. So of a trim and a new hold at the same time one conflicts, and retries. A hold that moves
forward needs no such transaction: until its new position is known, trim only keeps more than it must.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from penstock.errors import BadInput, NotSupported, Unavailable
from penstock.log.position import Position
from penstock.metadata import Check, Create, Delete, MetadataStore, Operation, Put, VersionConflict

_ATTEMPTS = 50


class Hold(NamedTuple):
    """Entries after `after` are needed by the cursor or pin `name`."""

    kind: str
    name: str
    after: Position


class Holds(NamedTuple):
    """All holds of a log, and the operation that, within a transaction, makes sure that no hold was made since."""

    holds: tuple[Hold, ...]
    unchanged: Operation


def log_list_key(log_name: str) -> str:
    """The key of a log's ledger list."""
    return f"log/{log_name}"


def cursor_key(log_name: str, cursor_name: str) -> str:
    return f"cursor/{log_name}/{cursor_name}"


def pin_key(log_name: str, pin_name: str) -> str:
    return f"pin/{log_name}/{pin_name}"


def holds_key(log_name: str) -> str:
    return f"holds/{log_name}"


def read_holds(metadata: MetadataStore, log_name: str) -> Holds:
    """Every hold: the counter is read first, so a hold made meanwhile is either seen here or makes `unchanged` fail.

    A cursor whose deletion began is none: nobody may use it any more, and a crash may have left the rest of its deletion to
    an open or a deletion of that name, which may never come.
    """
    counter = metadata.get(holds_key(log_name))
    found: list[Hold] = []
    for kind in ("cursor", "pin"):
        prefix = f"{kind}/{log_name}/"
        for key, value in metadata.entries(prefix):
            after = _after(kind, value.value)
            if after is not None:
                found.append(Hold(kind, key.removeprefix(prefix), after))
    return Holds(tuple(found), Check(holds_key(log_name), counter.version if counter else 0))


def holds_changed(metadata: MetadataStore, log_name: str) -> Operation:
    """The change of the counter, for a transaction that makes a hold or moves one back."""
    counter = metadata.get(holds_key(log_name))
    if counter is None:
        return Create(holds_key(log_name), b"1")
    return Put(holds_key(log_name), b"%d" % (int(counter.value) + 1), counter.version)


def put_pin(metadata: MetadataStore, log_name: str, name: str, position: Position) -> None:
    """Keeps the entries at and after `position` until the pin is removed; moves a pin that exists. Durable when it returns.

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
            continue  # a trim or another hold came first: read again
        return
    raise Unavailable(f"pin {name} of log {log_name}: others change the log all the time", hint="try again")


def remove_pin(metadata: MetadataStore, log_name: str, name: str) -> None:
    """Removes the pin, durably; nothing happens if there is none."""
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


def _after(kind: str, raw: bytes) -> Position | None:
    """After which position entries are needed; None where the hold is being deleted."""
    document = json.loads(raw)
    if kind == "cursor":
        if document["format"] != 1:  # a position that is not understood must never be taken for one that is passed
            raise NotSupported(
                f"a cursor's registration has format {document['format']}", hint="a newer Penstock wrote it: upgrade"
            )
        return None if document["state"] == "deleting" else Position.parse(document["mark_delete"])
    position = Position.parse(document["position"])
    return Position(position.ledger_id, position.entry_id - 1)
