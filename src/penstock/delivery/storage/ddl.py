"""Schema files at the sink: before the first data file of a table version, and at a DDL.

A schema file that is there stays as it is. Its name has the version and the checksum of the columns; a later Penstock may
spell the statement in it differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from penstock.delivery.payload import Payload
from penstock.delivery.storage.layout import Layout
from penstock.delivery.storage.place import SinkObjects
from penstock.errors import BadInput, Corruption, NotSupported, Terminal
from penstock.objects import ObjectChanged
from penstock.schema.forwarding import has_no_file, without_statement
from penstock.schema.model import DdlType, TableSchema
from penstock.schema.parking import ROWS_UNREADABLE, STOPPED_BY_RULES
from penstock.schema.quoting import shell_word
from penstock.schema.statements import create_database

SchemaFile = Callable[[TableSchema], tuple[str, bytes]]  # its name and content
_SPELLED = ("Query", "Type")


class SchemaFiles:
    """The schema files of one sink. Remembers nothing."""

    def __init__(self, layout: Layout, store: SinkObjects, schema_file: SchemaFile) -> None:
        self._layout = layout
        self._store = store
        self._schema_file = schema_file

    def deliverable(self, payload: Payload) -> TableSchema:
        """The table as a DDL made it. Raises `NotSupported` where its rows cannot go on: it is parked, or the sink's readers
        cannot be told what happened to it."""
        table = _own(bytes(payload.body), payload)
        if table.parked and table.reason.startswith(STOPPED_BY_RULES):
            raise NotSupported(
                f"{table.name} is held back at this sink: {table.reason.removeprefix(STOPPED_BY_RULES)}",
                hint="its rows stay in the log; a sink of a new name and prefix, with rules that fit, gets them all",
            )
        if table.parked and table.reason.startswith(ROWS_UNREADABLE):
            raise NotSupported(
                f"{table.name}: its rows cannot be read from here on: {table.reason.removeprefix(ROWS_UNREADABLE)}",
                hint="they stay in the log; penstock resume SINK tries again, a newer Penstock may read them; or leave the "
                "table out (sinks.NAME.only)",
            )
        if table.parked and table.columns and not table.query:
            raise NotSupported(
                f"{table.name}: this sink's format refuses {table.reason}",
                hint="its rows stay in the log; sinks.NAME.poison: dead-letter puts such rows apart and goes on",
            )
        if table.parked and table.columns:
            raise NotSupported(
                f"{table.name}: readers of the sink cannot be told of {table.query[:120]!r}: {table.reason}",
                hint="its rows stay in the log; take both tables, or leave it out (sinks.NAME.only), or use a new prefix",
            )
        if table.parked:
            raise NotSupported(
                f"{table.name} is parked at {table.query[:120]!r}: {table.reason}",
                hint=f"its rows stay in the log until `penstock resume {shell_word(table.name)}`",
            )
        return table

    def apply(self, table: TableSchema, payload: Payload) -> None:
        """The file of a DDL, if it has one, after those of the tables that it works on: a table of the start may not have had a
        row yet."""
        if has_no_file(table):
            return
        for text in _texts(payload):
            self._ensure(_parsed(text, payload))
        if table.table and table.columns:
            self._ensure_database(table)
        self._put(table)

    def ensure(self, payloads: Sequence[Payload]) -> None:
        """Puts the schema file of these rows, all of one table version, unless a DDL brought it."""
        first = payloads[0]
        text = next((payload.table_schema for payload in payloads if payload.table_schema), None)
        if text is not None:
            self._ensure(_own(text, first))
        elif (there := self._versions(first.schema, first.table).get(first.version)) is not None:
            self._store.settle(there)
        else:
            raise Terminal(f"{first.schema}.{first.table}: rows of version {first.version} came without their schema")

    def _put(self, table: TableSchema) -> None:
        name, content = self._schema_file(table)
        path = f"{self._layout.schema_directory(table.schema, table.table)}/{name}"
        there = self._store.read(path)
        if there is None:
            # Tables of one database may bring its file at the same moment: one of them makes it, the others find it.
            try:
                self._store.put_if(path, content, None)
            except ObjectChanged:
                there = self._store.read(path)
        if there is not None and there.data != content and not _same_table(there.data, content):
            raise Corruption(f"{path} is at the sink with another content; it was not overwritten")
        if there is not None:
            self._store.settle(path)

    def _ensure(self, table: TableSchema) -> None:
        path = f"{self._layout.schema_directory(table.schema, table.table)}/{self._schema_file(table)[0]}"
        if self._store.read(path) is not None:
            self._store.settle(path)
            return
        versions = self._versions(table.schema, table.table)
        if table.version in versions:
            self._store.settle(versions[table.version])
            return
        is_first = not any(version < table.version for version in versions)
        if is_first:
            self._ensure_database(table)
        self._put(without_statement(table, first=is_first))

    def _versions(self, schema: str, table: str) -> dict[int, str]:
        """The schema files that are there, by version."""
        names = self._store.list(self._layout.schema_directory(schema, table))
        return {version: name for name in names if (version := _version(name)) is not None}

    def _ensure_database(self, table: TableSchema) -> None:
        """Readers need the database of a table just before it: no DDL created it, or the sink does not take its DDL."""
        there = self._versions(table.schema, "")
        if (before := min(there, default=table.version)) < table.version:
            self._store.settle(there[before])
            return
        query = create_database(table.schema, None)
        self._put(TableSchema(table.schema, "", table.version - 1, (), query, DdlType.CREATE_SCHEMA))


def _own(text: str | bytes, payload: Payload) -> TableSchema:
    """The payload's own table version."""
    table = _parsed(text, payload)
    if (table.schema, table.table, table.version) != (payload.schema, payload.table, payload.version):
        raise BadInput(f"{payload} of version {payload.version} came with the schema of {table.name} {table.version}")
    return table


def _parsed(text: str | bytes, payload: Payload) -> TableSchema:
    try:
        return TableSchema.from_json(text)
    except (ValueError, KeyError, TypeError) as error:
        raise BadInput(f"{payload}: its table schema cannot be read: {error!r}") from error


def _texts(payload: Payload) -> list[str]:
    """Of a DDL: the tables that it works on."""
    try:
        return [str(text) for text in json.loads(payload.table_schema or "[]")]
    except (ValueError, TypeError) as error:
        raise BadInput(f"{payload}: the tables that it works on cannot be read: {error!r}") from error


def _version(path: str) -> int | None:
    """The version in a schema file's name; None for any other file."""
    parts = path.rpartition("/")[2].split("_")
    return int(parts[1]) if len(parts) == 3 and parts[0] == "schema" and parts[1].isdecimal() else None


def _same_table(there: bytes, made: bytes) -> bool:
    """Whether two schema files differ in their statements alone."""
    try:
        old, new = json.loads(there), json.loads(made)
        return {k: v for k, v in old.items() if k not in _SPELLED} == {
            k: v for k, v in new.items() if k not in _SPELLED
        }
    except (ValueError, AttributeError):
        return False
