"""Storage as a `Sink`: format, layout, objects and keeper combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.delivery.dispatcher import Batch, Dispatcher
from penstock.delivery.keeper_client import DispatcherStart, Intent, KeeperApi
from penstock.delivery.payload import Payload
from penstock.delivery.sink import BatchWrite, Bodies
from penstock.delivery.storage.checkpoint import CheckpointFile
from penstock.delivery.storage.commit import Commit, Storage
from penstock.delivery.storage.ddl import SchemaFiles
from penstock.delivery.storage.expiry import Expiry
from penstock.delivery.storage.index import Indexes
from penstock.delivery.storage.layout import DEAD_LETTERS, OWNER_PATH, Layout, directory_of, file_number
from penstock.delivery.storage.place import SinkObjects
from penstock.encode import Assembler
from penstock.files import Buffer
from penstock.log.position import Seq


@dataclass(slots=True)
class AtStorage:
    """What the sink remembers of a dispatcher. `intent` is the open one that an earlier owner left, until its file is
    done; the schema file of `schema_version` is known to be there."""

    last_path: str | None = None
    intent: Intent | None = None
    schema_version: int | None = None
    counted: str | None = None  # in an adopted sink: the directory whose index was asked for the last number

    def next_number(self, directory: str) -> int:
        """The next file's number: one more in the directory of the last file, 1 in any other directory."""
        if self.last_path is not None and directory_of(self.last_path) == directory:
            return file_number(self.last_path) + 1
        return 1


class _BoundKeeper:
    """The keeper, for one dispatcher at its epoch."""

    def __init__(self, keeper: KeeperApi, changefeed: str, dispatcher: Dispatcher) -> None:
        self._keeper = keeper
        self._changefeed = changefeed
        self._dispatcher = dispatcher

    def intent(self, intent: Intent, replaces: Intent | None) -> None:
        owner = self._dispatcher
        self._keeper.intent(self._changefeed, owner.run, owner.id, owner.epoch, intent, replaces=replaces is not None)

    def done(self, seq: Seq, path: str | None) -> int:
        owner = self._dispatcher
        return self._keeper.done(self._changefeed, owner.run, owner.id, owner.epoch, seq, path=path)


class StorageSink:
    """Remembers what the indexes hold, and what dispatchers carry in `at_sink`; nothing else. Where the sink was `adopted`,
    numbers go on after what the indexes there name, not after what this changefeed wrote."""

    def __init__(
        self,
        changefeed: str,
        *,
        layout: Layout,
        assembler: Assembler,
        store: SinkObjects,
        keeper: KeeperApi,
        schemas: SchemaFiles,
        checkpoint: CheckpointFile,
        expire_days: int = 0,
        adopted: bool = False,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.changefeed = changefeed
        self._layout = layout
        self._assembler = assembler
        self._keeper = keeper
        self._schemas = schemas
        self._checkpoint = checkpoint
        self._expiry = Expiry(store, layout, expire_days)
        self._store = store
        self._storage = Storage(layout, store, Indexes(store), adopted)
        self._on_close = on_close

    def recall(self, start: DispatcherStart | None) -> AtStorage:
        return AtStorage(start.last_path, start.intent) if start is not None else AtStorage()

    def key_of(self, payload: Payload) -> tuple[int, str]:
        """A file's directory has one table version and one date."""
        return payload.version, payload.date

    def begin(self, dispatcher: Dispatcher, batch: Batch, bodies: Bodies, release: Callable[[], None]) -> BatchWrite:
        known: AtStorage = dispatcher.at_sink
        version, date = self.key_of(batch.items[0].payload)
        if known.schema_version != version:
            self._schemas.ensure([item.payload for item in batch.items])
            known.schema_version = version
        directory = self._layout.data_directory(dispatcher.schema, dispatcher.table, version, date)

        if self._storage.adopted and known.intent is None and known.counted != directory:
            last = self._storage.indexes.last_number(self._layout.index_path(directory))
            known.last_path = self._layout.data_path(directory, last) if last else None
            known.counted = directory

        def released() -> None:
            known.last_path, known.intent = commit.path, None
            release()

        commit = Commit(
            directory,
            batch,
            bodies,
            assembler=self._assembler,
            number=known.next_number(directory),
            opened=known.intent,
            storage=self._storage,
            keeper=_BoundKeeper(self._keeper, self.changefeed, dispatcher),
            release=released,
        )
        return commit

    def apply_ddl(self, dispatcher: Dispatcher, payload: Payload) -> int | None:
        table = self._schemas.deliverable(payload)
        if not self._keeper.drained(self.changefeed, dispatcher.run, dispatcher.id, payload.last_seq):
            return None
        self._schemas.apply(table, payload)
        dispatcher.at_sink.schema_version = table.version
        return self._keeper.done(
            self.changefeed, dispatcher.run, dispatcher.id, dispatcher.epoch, payload.last_seq, path=None
        )

    def put_dead_letter(self, schema: str, table: str, seq: Seq, data: Buffer) -> None:
        """One object a row, by its seq: a task that runs again puts the same."""
        where = self._layout.table_directory(schema, table)
        self._store.put(f"{DEAD_LETTERS}/{where}/{str(seq).replace(':', '-')}.json", data)

    def describe(self, dispatcher: Dispatcher) -> dict[str, Any]:
        return {"last_path": dispatcher.at_sink.last_path}

    def probe(self) -> None:
        self._storage.store.size(OWNER_PATH)

    def write_checkpoint(self, checkpoint_ts: int, *, at_once: bool) -> None:
        self._checkpoint.write(checkpoint_ts, at_once=at_once)
        if not at_once:
            self._expiry.step(checkpoint_ts)

    def close(self) -> None:
        self._on_close()
