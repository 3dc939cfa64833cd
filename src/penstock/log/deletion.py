"""Deleting a whole log: its cursors, pins, ledgers, objects and metadata.

(1) the list says `deleted`, under a new epoch: the owner is fenced, and readers and cursors find the log deleted; (2)
the record logs of the cursors, and their registrations; (3) pins and the counter of holds; (4) offloaded objects, then
local ledgers; (5) the small files; (6) the list, last: an `end` file with a slot and no list mean that the metadata is
lost. After a crash the next `Log.open` or `delete_log` goes on. Where an object store does not answer, the deletion
fails by name, and stays unfinished until the store answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from pathlib import Path

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import Fenced
from penstock.files import REAL_FILES, Files, typed_errors
from penstock.log.cursors.idle import idle_key
from penstock.log.cursors.registry import registered
from penstock.log.frames.end_file import EndFile
from penstock.log.ledgers.holds import cursor_key, holds_key, pin_key
from penstock.log.ledgers.info import LedgerList
from penstock.log.ledgers.local import LocalLedgerStore
from penstock.log.offload.format import object_names
from penstock.log.read.reader import END_NAME, default_metadata_path, log_key
from penstock.metadata import MetadataStore, SqliteMetadata, VersionConflict
from penstock.objects import open_objects


def delete_log(
    directory: Path, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK, metadata: MetadataStore | None = None
) -> None:
    """Removes the log for good, if there is one. Raises `Unavailable` while another process owns it."""
    del clock
    with typed_errors(f"log {directory}"), contextlib.ExitStack() as resources:
        if not files.exists(directory):
            return
        resources.enter_context(files.lock(directory / "lock"))
        if metadata is None:
            metadata = SqliteMetadata(default_metadata_path(directory))
            resources.callback(metadata.close)
        remove_log(directory, files, metadata)


def remove_log(directory: Path, files: Files, metadata: MetadataStore) -> None:
    """The steps (1) to (6). The lock is held already."""
    metadata.settle()
    key = log_key(directory)
    found = metadata.get(key)
    if found is not None:
        listed = LedgerList.decode(found.value)
        if not listed.deleted:
            listed = dataclasses.replace(listed, epoch=listed.epoch + 1, deleted=True)
            try:
                metadata.put(key, listed.encode(), found.version)
            except VersionConflict as error:
                raise Fenced(f"{directory}: another process opened the log at the same time") from error
        if files.exists(directory / END_NAME):
            end_file = EndFile.open(files, directory / END_NAME, writable=True)
            try:
                end_file.fence(listed.epoch)
            finally:
                end_file.close()
        for cursor in registered(metadata, directory.name):
            remove_record_log(files, directory / cursor.directory, cursor.name)
            _delete_key(metadata, cursor_key(directory.name, cursor.name))
        for pin in metadata.children(pin_key(directory.name, "")):
            _delete_key(metadata, pin)
        _delete_key(metadata, holds_key(directory.name))
        _delete_key(metadata, idle_key(directory.name))
        _remove_objects(listed, files)
        store = LocalLedgerStore(directory, files, listed.uuid)
        for number in store.list():
            store.delete(number)
    # Checkpoints name the log that they belong to: those that cannot be removed here (directories, of an engine with a
    # file layer of its own) are refused by a new log in this place.
    for name in files.list(directory / "state"):
        with contextlib.suppress(OSError):
            files.remove(directory / "state" / name)
    files.remove(directory / END_NAME)
    files.sync_directory(directory)
    _delete_key(metadata, key)


def _remove_objects(listed: LedgerList, files: Files) -> None:
    """Removes every object under the log's uuid, in each store that its list names; also objects that no list names."""
    urls = {info.offload.url for info in listed.ledgers if info.offload is not None}
    for url in sorted(urls | {one.url for one in listed.discarded}):
        objects = open_objects(url, files)
        named = [
            *((info.id, info.offload.attempt, info.offload.parts)
              for info in listed.ledgers if info.offload is not None and info.offload.url == url),
            *((one.ledger, one.attempt, one.parts) for one in listed.discarded if one.url == url),
        ]  # fmt: skip
        for ledger_id, attempt, parts in named:
            objects.delete(object_names(listed.uuid, ledger_id, attempt, parts))
        objects.delete(objects.list(str(listed.uuid)))


def remove_record_log(files: Files, directory: Path, name: str) -> None:
    """Removes every file of the record log; `.current` first: without it the others do not count."""
    own = re.compile(re.escape(name) + r"(\.current|\.end|\.lock|-\d{16}\.rlog)")
    names = [found for found in files.list(directory) if own.fullmatch(found)]
    for found in sorted(names, key=lambda found: (not found.endswith(".current"), found)):
        files.remove(directory / found)
    if names:
        files.sync_directory(directory)


def _delete_key(metadata: MetadataStore, key: str) -> None:
    while (found := metadata.get(key)) is not None:
        with contextlib.suppress(VersionConflict):
            metadata.delete(key, found.version)
