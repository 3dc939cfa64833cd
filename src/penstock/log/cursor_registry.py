"""The cursors of a log in the metadata store (docs/formats/record-log.md, "Registration").

A registration says where a cursor's record log is, and a mark-delete position that is durable there: what trim may rely
on. It may be older than the cursor, never newer, so it holds back too much for a while and never too little.

One key, `cursor-set/<log>`, changes its version whenever a cursor comes, goes, or moves back. Trim checks it in its
transaction (`trim_floor`); a cursor is registered in a transaction that checks the ledger list: one of the two loses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from penstock.errors import NotSupported
from penstock.log.position import Position
from penstock.metadata import Check, Create, Delete, MetadataStore, Operation, Put

_OLDEST = Position(0, -1)


def cursor_key(log: str, name: str) -> str:
    return f"cursors/{log}/{name}"


def set_key(log: str) -> str:
    return f"cursor-set/{log}"


def _first_format_key(log: str, name: str) -> str:
    return f"cursor/{log}/{name}"


@dataclass(frozen=True, slots=True)
class Registered:
    """What the metadata store knows of a cursor. `version` 0: it is not there (yet)."""

    name: str
    uuid: str  # of the log
    mark_delete: Position = _OLDEST
    directory: str = ""  # of its record log; relative to the log's own directory. Empty: nobody said
    active_ms: int = 0  # when it was last used, as of the last change here
    deleting: bool = False
    version: int = 0

    def encode(self) -> bytes:
        document = {
            "format": 1,
            "uuid": self.uuid,
            "mark_delete": str(self.mark_delete),
            "directory": self.directory,
            "active_ms": self.active_ms,
            "state": "deleting" if self.deleting else "live",
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, name: str, raw: bytes, version: int) -> Registered:
        document = json.loads(raw)
        if document["format"] != 1:
            raise NotSupported(
                f"cursor {name} has a registration of format {document['format']}",
                hint="a newer Penstock wrote it: upgrade",
            )
        return cls(
            name,
            document["uuid"],
            Position.parse(document["mark_delete"]),
            document["directory"],
            document["active_ms"],
            document["state"] == "deleting",
            version,
        )


def find(metadata: MetadataStore, log: str, name: str) -> Registered | None:
    found = metadata.get(cursor_key(log, name))
    if found is not None:
        return Registered.decode(name, found.value, found.version)
    old = metadata.get(_first_format_key(log, name))  # the first format knew the log's uuid alone
    return Registered(name, old.value.decode()) if old is not None else None


def registered(metadata: MetadataStore, log: str) -> list[Registered]:
    """Every cursor of the log, those whose deletion is not finished too; by name."""
    names: set[str] = set()
    for prefix in (cursor_key(log, ""), _first_format_key(log, "")):
        names.update(key[len(prefix) :] for key in metadata.children(prefix))
    found = (find(metadata, log, name) for name in sorted(names))
    return [cursor for cursor in found if cursor is not None]


def trim_floor(metadata: MetadataStore, log: str) -> tuple[Position | None, list[Operation]]:
    """(the position up to which no cursor needs anything, what trim's transaction must check so that this stays true).

    None: there is no cursor, so nothing holds trim back.
    """
    found = metadata.get(set_key(log))  # before the cursors are read: one that comes in between makes the check fail
    check = Check(set_key(log), found.version if found else 0)
    live = [cursor.mark_delete for cursor in registered(metadata, log) if not cursor.deleting]
    return min(live, default=None), [check]


def register(metadata: MetadataStore, log: str, cursor: Registered, log_key: str, log_version: int) -> Registered:
    """Adds or changes the registration if the ledger list is still at `log_version`. Raises `VersionConflict`."""
    operations: list[Operation] = [Check(log_key, log_version), _bump(metadata, log)]
    key = cursor_key(log, cursor.name)
    if cursor.version:
        operations.append(Put(key, cursor.encode(), cursor.version))
    else:
        operations.append(Create(key, cursor.encode()))
        old = metadata.get(_first_format_key(log, cursor.name))
        if old is not None:
            operations.append(Delete(_first_format_key(log, cursor.name), old.version))
    metadata.transaction(operations)
    return replace(cursor, version=cursor.version + 1)


def move(metadata: MetadataStore, log: str, cursor: Registered) -> Registered:
    """Publishes a later mark-delete, or that deletion began. Raises `VersionConflict` where another owner was there."""
    version = metadata.put(cursor_key(log, cursor.name), cursor.encode(), cursor.version)
    return replace(cursor, version=version)


def forget(metadata: MetadataStore, log: str, cursor: Registered) -> None:
    """The last step of a deletion."""
    key, version = cursor_key(log, cursor.name), cursor.version
    if not version:
        key = _first_format_key(log, cursor.name)
        old = metadata.get(key)
        version = old.version if old else 0
    metadata.transaction([Delete(key, version), _bump(metadata, log)])


def _bump(metadata: MetadataStore, log: str) -> Operation:
    found = metadata.get(set_key(log))
    return Put(set_key(log), b"", found.version) if found else Create(set_key(log), b"")
