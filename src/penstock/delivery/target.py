"""A changefeed's sink as its writers see it: format, layout, store and keeper combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.delivery.dispatcher import Batch, Dispatcher
from penstock.delivery.keeper_client import Intent, KeeperApi
from penstock.delivery.payload import Payload
from penstock.delivery.storage.commit import Commit, intent_for
from penstock.delivery.storage.layout import Layout
from penstock.delivery.storage.store import Store
from penstock.errors import BadInput, Corruption, Terminal
from penstock.files import Buffer
from penstock.log.position import Seq
from penstock.schema.model import TableSchema

SchemaFile = Callable[[TableSchema], tuple[str, bytes]]  # its name and content


class Assembler(Protocol):
    """The part of a file format that delivery needs: payloads → file, a function of the rows alone."""

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer: ...


class _BoundKeeper:
    """The keeper, for one dispatcher at its epoch."""

    def __init__(self, keeper: KeeperApi, changefeed: str, dispatcher: Dispatcher) -> None:
        self._keeper = keeper
        self._changefeed = changefeed
        self._dispatcher = dispatcher

    def intent(self, intent: Intent) -> None:
        self._keeper.intent(self._changefeed, self._dispatcher.id, self._dispatcher.epoch, intent)

    def done(self, seq: Seq, path: str | None) -> int:
        return self._keeper.done(self._changefeed, self._dispatcher.id, self._dispatcher.epoch, seq, path)


class Target:
    """Has no state of its own; every method may be called again after a transient error."""

    def __init__(
        self,
        changefeed: str,
        *,
        layout: Layout,
        assembler: Assembler,
        store: Store,
        keeper: KeeperApi,
        schema_file: SchemaFile,
    ) -> None:
        self.changefeed = changefeed
        self._layout = layout
        self._assembler = assembler
        self._store = store
        self._keeper = keeper
        self._schema_file = schema_file

    def commit(self, dispatcher: Dispatcher, batch: Batch, *, release: Callable[[], None]) -> Commit:
        """The batch as a file that is ready to be written; it continues the dispatcher's open intent if there is
        one."""
        data = self._assembler.assemble(batch.bodies)
        directory = self._directory(dispatcher, batch)
        keeper = _BoundKeeper(self._keeper, self.changefeed, dispatcher)
        if dispatcher.intent is not None:
            if not dispatcher.intent.path.startswith(f"{directory}/"):
                raise Terminal(
                    f"{dispatcher.intent.path} is open, but its rows belong to {directory} now",
                    hint="layout or format changed while the file was open: start once with the old ones",
                )
            return Commit.resume(
                dispatcher.intent, data, layout=self._layout, keeper=keeper, store=self._store, release=release
            )
        path = self._layout.data_path(directory, dispatcher.next_number(directory))
        intent = intent_for(path, batch.first_seq, batch.last_seq, data, batch.rows)
        return Commit.begin(intent, data, layout=self._layout, keeper=keeper, store=self._store, release=release)

    def ensure_schema(self, dispatcher: Dispatcher, batch: Batch) -> None:
        """Puts the schema file of the batch's version to the sink, unless it is there: it comes before the first data
        file."""
        if dispatcher.schema_version == batch.version:
            return
        text = next((item.payload.table_schema for item in batch.items if item.payload.table_schema), None)
        if text is not None:
            self._put_schema(self._parse_schema(text, batch.items[0].payload))
        else:
            directory = self._layout.schema_directory(dispatcher.schema, dispatcher.table)
            if not any(name.startswith(f"schema_{batch.version}_") for name in self._store.list(directory)):
                raise Terminal(
                    f"{dispatcher.schema}.{dispatcher.table}: rows of version {batch.version} came without their schema"
                )
        dispatcher.schema_version = batch.version

    def apply_ddl(self, dispatcher: Dispatcher, payload: Payload) -> int:
        """Barrier, schema file, progress; returns the checkpoint_ts. Everything before the DDL is at the sink
        already."""
        table = self._parse_schema(bytes(payload.body), payload)
        self._keeper.drained(self.changefeed, dispatcher.id, payload.last_seq)
        self._put_schema(table)
        dispatcher.schema_version = table.version
        return self._keeper.done(self.changefeed, dispatcher.id, dispatcher.epoch, payload.last_seq, None)

    def _directory(self, dispatcher: Dispatcher, batch: Batch) -> str:
        return self._layout.data_directory(dispatcher.schema, dispatcher.table, batch.version, batch.date)

    def _put_schema(self, table: TableSchema) -> None:
        name, content = self._schema_file(table)
        path = f"{self._layout.schema_directory(table.schema, table.table)}/{name}"
        there = self._store.read(path)
        if there is None:
            self._store.put(path, content)
        elif there != content:
            raise Corruption(f"{path} is at the sink with another content; it was not overwritten")

    @staticmethod
    def _parse_schema(text: str | bytes, payload: Payload) -> TableSchema:
        try:
            table = TableSchema.from_json(text)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f"{payload}: its table schema cannot be read: {error!r}") from error
        if (table.schema, table.table, table.version) != (payload.schema, payload.table, payload.version):
            raise BadInput(
                f"{payload} of version {payload.version} came with the schema of {table.name} {table.version}"
            )
        return table
