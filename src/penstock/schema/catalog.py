"""The tables and databases in force at one point of the source, found by name as their server finds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.schema.model import ChangeKind, TableSchema

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})


class Catalog:
    """What is known. A table that is not in it is not followed, or its shape is not known yet.

    `lower_case_table_names` is the server's setting: 0, names differ by case; 1, the server stores them in lower case;
    2, it stores them as they were written and compares them in lower case.
    """

    def __init__(self, versions: Iterable[TableSchema] = (), *, lower_case_table_names: int = 0) -> None:
        self._lower_case = lower_case_table_names
        self._tables: dict[tuple[str, str], TableSchema] = {}
        self._databases: dict[str, TableSchema] = {}
        for version in versions:
            self.take(version)

    def compare_names(self, lower_case_table_names: int) -> None:
        """From here on names are compared by this setting of the server."""
        versions = [*self._databases.values(), *self._tables.values()]
        self._lower_case = lower_case_table_names
        self._tables, self._databases = {}, {}
        for version in versions:
            self.take(version)

    def stored(self, schema: str, table: str) -> tuple[str, str]:
        """The name under which the server stores and logs a table that a statement calls so."""
        return (schema.lower(), table.lower()) if self._lower_case == 1 else (schema, table)

    def find(self, schema: str, table: str) -> TableSchema | None:
        """The version in force under this name, in whatever case: a table, a parked one, a sequence; None if unknown."""
        if schema.lower() in SYSTEM_SCHEMAS:
            return None
        return self._tables.get(self._key(schema, table))

    def database_charset(self, schema: str) -> str | None:
        found = self._databases.get(self._key(schema, "")[0])
        return found.charset if found else None

    def has_database(self, schema: str) -> bool:
        return self._key(schema, "")[0] in self._databases

    def tables(self) -> Iterator[TableSchema]:
        yield from self._tables.values()

    def databases(self) -> set[str]:
        """Names of databases that are known themselves, or by a table."""
        return {d.schema for d in self._databases.values()} | {t.schema for t in self._tables.values()}

    def take(self, version: TableSchema) -> None:
        """`version` is in force from here on."""
        key = self._key(version.schema, version.table)
        if not version.table:
            if version.kind is ChangeKind.DROP_DATABASE:
                self._databases.pop(key[0], None)
                for name in [name for name in self._tables if name[0] == key[0]]:
                    del self._tables[name]
            else:
                self._databases[key[0]] = version
        elif version.dropped:
            self._tables.pop(key, None)
        else:
            self._tables[key] = version

    def _key(self, schema: str, table: str) -> tuple[str, str]:
        return (schema.lower(), table.lower()) if self._lower_case else (schema, table)
