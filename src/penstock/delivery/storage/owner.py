"""Who may write below a prefix: one changefeed of one log. `_penstock/owner.json` says so.

A prefix that belongs to another changefeed or another log is refused, and so is one that holds files without an owner.
Each process that takes the prefix first raises the epoch in that file. On `file://` a lock keeps out a second process
of the same owner (of a copied state directory, or an old process that still drains); the lock ends with its process.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.delivery.storage.layout import CONTROL_DIRECTORY, LOCK_PATH, METADATA_PATH, OWNER_PATH, PROGRESS_PATH
from penstock.delivery.storage.store import LocalStore, Store
from penstock.errors import BadInput, Corruption
from penstock.files import Files

_HINT = "use a new prefix; taking over a used one is not supported yet"


@dataclass(frozen=True, slots=True)
class Owner:
    """The content of `_penstock/owner.json`."""

    changefeed: str
    log_uuid: str
    format: str
    epoch: int
    claimed_ms: int
    version: int = 1

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> Owner:
        try:
            value: dict[str, Any] = json.loads(raw)
            return cls(**{name: value[name] for name in cls.__slots__})
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{where}/{OWNER_PATH} cannot be read: {error!r}", hint=_HINT) from error


def read_owner(store: Store, where: str) -> Owner | None:
    raw = store.read(OWNER_PATH)
    return None if raw is None else Owner.from_bytes(raw, where)


def check_owner(store: Store, where: str, *, changefeed: str, log_uuid: str, format_name: str) -> Owner | None:
    """The recorded owner if it is this changefeed, None for an unused prefix. Raises `BadInput` for any other owner."""
    owner = read_owner(store, where)
    if owner is None:
        foreign = [name for name in store.list("") if name not in (CONTROL_DIRECTORY, ".", "..")]
        if foreign:
            raise BadInput(f"{where} holds files that no feed of Penstock owns ({foreign[0]}, …)", hint=_HINT)
        return None
    if (owner.changefeed, owner.log_uuid) != (changefeed, log_uuid):
        same_name = " of another state directory" if owner.changefeed == changefeed else ""
        raise BadInput(
            f"{where} holds files of feed {owner.changefeed}{same_name}, last write {_last_write(store)}", hint=_HINT
        )
    if owner.format != format_name:
        raise BadInput(
            f"{where} holds {owner.format} files of feed {changefeed}, which is set to {format_name} now",
            hint="set the old format again, or give the new one a new prefix",
        )
    return owner


class Claim:
    """A prefix that this process may write, until `close`."""

    def __init__(self, owner: Owner, lock: contextlib.ExitStack) -> None:
        self.owner = owner
        self._lock = lock

    def close(self) -> None:
        self._lock.close()


def claim(root: Path, files: Files, clock: Clock, *, changefeed: str, log_uuid: str, format_name: str) -> Claim:
    """Takes the prefix: lock, check, epoch + 1. Raises `Unavailable` where another process still holds it."""
    store = LocalStore(root, files)
    where = str(root)
    check_owner(store, where, changefeed=changefeed, log_uuid=log_uuid, format_name=format_name)
    files.make_directory(root / CONTROL_DIRECTORY)
    with contextlib.ExitStack() as stack:
        stack.enter_context(files.lock(root / LOCK_PATH))
        before = check_owner(store, where, changefeed=changefeed, log_uuid=log_uuid, format_name=format_name)
        epoch = before.epoch + 1 if before is not None else 1
        owner = Owner(changefeed, log_uuid, format_name, epoch, clock.wall_ms())
        store.put(OWNER_PATH, owner.to_bytes())
        return Claim(owner, stack.pop_all())


def _last_write(store: Store) -> str:
    raw = store.read(PROGRESS_PATH)
    try:
        milliseconds = int(json.loads(raw)["wall_ms"]) if raw is not None else None
    except (ValueError, KeyError, TypeError):
        milliseconds = None
    if milliseconds is None:
        return "never" if not store.exists(METADATA_PATH) else "unknown"
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
