"""The cursors of a log in the metadata store (docs/formats/record-log.md, "Registration").

A registration says where a cursor's record log is, and a mark-delete position that is durable there, on which trim
relies (holds.py). The registered position may be older than the cursor's own, never newer, so trim may keep too much
for a while and never too little. A cursor is registered, or moved back, in a transaction that checks the ledger list
and changes the counter of holds; a trim changes the list and checks the counter. Of two at the same time one conflicts
and retries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from uuid import UUID

from penstock.errors import NotSupported
from penstock.log.ledgers.holds import cursor_key, holds_changed, log_list_key
from penstock.log.position import Position
from penstock.metadata import Check, Create, Delete, MetadataStore, Operation, Put, Versioned


@dataclass(frozen=True, slots=True)
class Registered:
    """What the metadata store knows of a cursor. `version` 0: it is not registered yet."""

    name: str
    uuid: str  # of the log
    mark_delete: Position
    directory: str  # of its record log; relative to the log's own directory
    active_ms: int = 0  # when the cursor was last used, as of the last change of the registration
    deleting: bool = False
    version: int = 0
    damage: str = ""  # what was wrong with its records when they were last set aside

    def encode(self) -> bytes:
        document = {
            "format": 1,
            "uuid": self.uuid,
            "mark_delete": str(self.mark_delete),
            "directory": self.directory,
            "active_ms": self.active_ms,
            "state": "deleting" if self.deleting else "live",
            **({"damage": self.damage} if self.damage else {}),
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, name: str, found: Versioned) -> Registered:
        raw, version = found
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
            document.get("damage", ""),
        )


def find(metadata: MetadataStore, log: str, name: str) -> Registered | None:
    found = metadata.get(cursor_key(log, name))
    return Registered.decode(name, found) if found is not None else None


def registered(metadata: MetadataStore, log: str) -> list[Registered]:
    """Every cursor of the log, those whose deletion is not finished too; by name."""
    prefix = cursor_key(log, "")
    return [Registered.decode(key.removeprefix(prefix), found) for key, found in metadata.entries(prefix)]


def is_registered(metadata: MetadataStore, log: UUID, name: str) -> bool:
    """Whether a log with that uuid, under whatever name, has a cursor of that name. Reads every cursor of every log."""
    return any(
        key.endswith(f"/{name}") and Registered.decode(name, found).uuid == str(log)
        for key, found in metadata.entries(cursor_key("", "").removesuffix("/"))
    )


def register(metadata: MetadataStore, log: str, cursor: Registered, list_version: int) -> Registered:
    """Adds or changes the registration if the ledger list is still at `list_version`. Raises `VersionConflict`."""
    key = cursor_key(log, cursor.name)
    write: Operation = Put(key, cursor.encode(), cursor.version) if cursor.version else Create(key, cursor.encode())
    version = metadata.transaction([write, holds_changed(metadata, log), Check(log_list_key(log), list_version)])
    return replace(cursor, version=version)


def move(metadata: MetadataStore, log: str, cursor: Registered) -> Registered:
    """Publishes a later mark-delete, or that the deletion began. Raises `VersionConflict` where another owner did."""
    return replace(cursor, version=metadata.put(cursor_key(log, cursor.name), cursor.encode(), cursor.version))


def forget(metadata: MetadataStore, log: str, cursor: Registered) -> None:
    """The last step of a deletion."""
    metadata.transaction([Delete(cursor_key(log, cursor.name), cursor.version)])
