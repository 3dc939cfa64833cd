"""DDL statements → the schemas they make.

Read by a small parser of our own: a general SQL parser gives up on much of what servers log (`ADD COLUMN (a INT, b INT)`,
`NATIONAL VARCHAR`, `POINT`, MariaDB's clauses), and most of a statement does not matter for the shape of a table.

Three answers: new schemas; an empty list, where no followed table changes its shape; or `NotSupported` by name, where a
followed table would change in a way that this version does not carry on. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.binlog.charset import charset_of_collation
from penstock.errors import BadInput, NotSupported
from penstock.schema.column_ddl import charset_name, key_columns, read_column
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.tokens import NAME, SYMBOL, WORD, Cursor, split_commas, tokens_of

Lookup = Callable[[str, str], TableSchema | None]

SYSTEM_SCHEMAS = frozenset({"mysql", "information_schema", "performance_schema", "sys"})

_DDL_WORDS = frozenset(
    [
        "CREATE",
        "ALTER",
        "DROP",
        "RENAME",
        "TRUNCATE",
        "GRANT",
        "REVOKE",
        "FLUSH",
        "ANALYZE",
        "OPTIMIZE",
        "REPAIR",
        "INSTALL",
        "UNINSTALL",
    ]
)
_TABLE_ELEMENTS = frozenset(
    ["PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK", "VECTOR"]
)
_HARMLESS_ADDS = frozenset(["INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "PARTITION", "VECTOR"])
_HARMLESS_DROPS = frozenset(["INDEX", "KEY", "FOREIGN", "CONSTRAINT", "CHECK"])
_REFUSED_SPECS = {
    "MODIFY": "MODIFY COLUMN",
    "CHANGE": "CHANGE COLUMN",
    "CONVERT": "CONVERT TO CHARACTER SET",
    "TRUNCATE": "TRUNCATE PARTITION",
    "EXCHANGE": "EXCHANGE PARTITION",
    "IMPORT": "IMPORT TABLESPACE",
    "DISCARD": "DISCARD TABLESPACE",
}


class SchemaDrift(BadInput):
    """The schema that Penstock knows and what the server logs do not fit together."""


def is_ddl(sql: str) -> bool:
    """Whether a logged statement is one that commits by itself and may change tables, users or indexes."""
    return tokens_of(sql, limit=1)[0].upper in _DDL_WORDS


def apply_ddl(
    sql: str, default_schema: str, commit_ts: int, lookup: Lookup, *, default_charset: str = "utf8mb4"
) -> list[TableSchema]:
    """The schemas in force after `sql`, each with `version` = `commit_ts`; empty where no followed table changes.

    `lookup(schema, table)` gives the schema in force before, None for tables that nobody follows. `default_charset` is
    the database's, where the caller knows it. A database itself is a `TableSchema` with an empty table name.
    """
    statement = _Statement(sql, default_schema, commit_ts, lookup, default_charset)
    if tokens_of(sql, limit=1)[0].upper not in ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"):
        return []
    return statement.apply()


class _Statement:
    def __init__(self, sql: str, default_schema: str, commit_ts: int, lookup: Lookup, default_charset: str) -> None:
        self.sql = sql
        self.default_schema = default_schema
        self.commit_ts = commit_ts
        self.lookup = lookup
        self.default_charset = default_charset
        self.cursor = Cursor(sql)

    def apply(self) -> list[TableSchema]:
        cursor = self.cursor
        if cursor.word("CREATE"):
            cursor.word("OR", "REPLACE")
            if cursor.word("TEMPORARY"):
                return []
            if cursor.any_word("DATABASE", "SCHEMA"):
                cursor.word("IF", "NOT", "EXISTS")
                return [self._database(cursor.name(), DdlType.CREATE_SCHEMA)]
            if cursor.word("SEQUENCE"):
                raise self._refused(
                    "CREATE SEQUENCE",
                    hint="use AUTO_INCREMENT instead, and start after this statement with a new state_dir",
                )
            return self._create_table() if cursor.word("TABLE") else []
        if cursor.word("DROP"):
            if cursor.word("TEMPORARY"):
                return []
            if cursor.any_word("DATABASE", "SCHEMA"):
                cursor.word("IF", "EXISTS")
                return [self._database(cursor.name(), DdlType.DROP_SCHEMA)]
            return self._drop_tables() if cursor.any_word("TABLE", "TABLES") else []
        if cursor.word("ALTER"):
            cursor.any_word("ONLINE", "OFFLINE")
            cursor.word("IGNORE")
            return self._alter_table() if cursor.word("TABLE") else []
        if cursor.word("RENAME"):
            if cursor.any_word("TABLE", "TABLES"):
                self._refuse_followed("RENAME TABLE")
            return []
        cursor.word("TRUNCATE")
        cursor.word("TABLE")
        self._refuse_followed("TRUNCATE TABLE")
        return []

    def _database(self, name: str, kind: DdlType) -> TableSchema:
        return TableSchema(name, "", self.commit_ts, (), self.sql, kind)

    def _target(self) -> tuple[str, str]:
        schema, table = self.cursor.qualified()
        return schema or self.default_schema, table

    def _refused(self, what: str, *, table: str = "", hint: str = "") -> NotSupported:
        on = f" of {table}" if table else ""
        return NotSupported(
            f"{what}{on} is not supported yet: {self.sql[:120]!r}",
            hint=hint or "leave the table out (source.tables.exclude), or start after the change with a new state_dir",
        )

    def _refuse_followed(self, what: str) -> None:
        """Raises if any table named in the rest of the statement is followed."""
        cursor = self.cursor
        while not cursor.done:
            if cursor.now.kind in (NAME, WORD):
                schema, table = self._target()
                if self._known(schema, table):
                    raise self._refused(what, table=f"{schema}.{table}")
            else:
                cursor.next()

    def _known(self, schema: str, table: str) -> TableSchema | None:
        if schema.lower() in SYSTEM_SCHEMAS:
            return None
        known = self.lookup(schema, table)
        return None if known is None or known.dropped else known

    def _create_table(self) -> list[TableSchema]:
        cursor = self.cursor
        if_not_exists = cursor.word("IF", "NOT", "EXISTS")
        schema, table = self._target()
        if schema.lower() in SYSTEM_SCHEMAS:
            return []
        if if_not_exists and self._known(schema, table):
            return []
        made = TableSchema(schema, table, self.commit_ts, (), self.sql, DdlType.CREATE_TABLE)
        if cursor.word("LIKE"):
            return [self._like(made)]
        if not (cursor.now.kind == SYMBOL and cursor.now.text == "("):
            raise self._refused("CREATE TABLE … SELECT", table=made.name)
        body = cursor.inside()
        if body and body[0].upper == "LIKE":
            cursor = self.cursor = Cursor(self.sql, body[1:])
            return [self._like(made)]
        charset = self._table_options(made)
        columns: list[Column] = []
        key: list[str] = []
        for part in split_commas(body):
            if not part:
                raise cursor.unreadable()
            inner = Cursor(self.sql, part)
            first = part[0].upper
            if first in _TABLE_ELEMENTS or (first == "PERIOD" and len(part) > 1 and part[1].upper == "FOR"):
                if first == "PERIOD":
                    raise self._refused("a system-versioned table", table=made.name)
                key = _primary_key(inner) or key
                continue
            columns.append(read_column(inner, charset).column)
        return [replace(made, columns=_with_key(columns, key, made), charset=charset)]

    def _table_options(self, made: TableSchema) -> str:
        """Takes the options after the columns; gives the table's default charset."""
        cursor = self.cursor
        charset: str | None = None
        collation: str | None = None
        while not cursor.done:
            if cursor.word("CHARSET") or cursor.word("CHARACTER", "SET") or cursor.word("CHAR", "SET"):
                cursor.symbol("=")
                charset = charset_name(cursor.name(), self.default_charset)
            elif cursor.word("COLLATE"):
                cursor.symbol("=")
                collation = charset_of_collation(cursor.name())
            elif cursor.word("SYSTEM", "VERSIONING"):
                raise self._refused("a system-versioned table", table=made.name)
            elif cursor.any_word("SELECT", "WITH") == "SELECT":
                raise self._refused("CREATE TABLE … SELECT", table=made.name)
            elif cursor.word("PARTITION", "BY"):
                break  # nothing after it concerns the columns
            elif cursor.now.kind == SYMBOL and cursor.now.text == "(":
                cursor.skip_group()
            else:
                cursor.next()
        return charset or collation or self.default_charset

    def _like(self, made: TableSchema) -> TableSchema:
        schema, table = self._target()
        model = self._known(schema, table)
        if model is None:
            raise self._refused(f"CREATE TABLE LIKE {schema}.{table}, which is not known,", table=made.name)
        return replace(made, columns=model.columns, charset=model.charset)

    def _drop_tables(self) -> list[TableSchema]:
        cursor = self.cursor
        cursor.word("IF", "EXISTS")
        dropped: list[TableSchema] = []
        while True:
            schema, table = self._target()
            if self._known(schema, table):
                dropped.append(TableSchema(schema, table, self.commit_ts, (), self.sql, DdlType.DROP_TABLE))
            if not cursor.symbol(","):
                return dropped

    def _alter_table(self) -> list[TableSchema]:
        cursor = self.cursor
        cursor.word("IF", "EXISTS")
        schema, table = self._target()
        known = self._known(schema, table)
        if known is None:
            return []  # not followed, or followed from its next table map on
        if cursor.word("WAIT"):
            cursor.next()
        cursor.word("NOWAIT")
        change = _Alteration(self, known)
        for part in split_commas(cursor.tokens[cursor.at : -1]):
            if part:
                change.apply(Cursor(self.sql, part))
        return change.result()


class _Alteration:
    """One ALTER TABLE, clause by clause, on the columns before it."""

    def __init__(self, statement: _Statement, table: TableSchema) -> None:
        self.statement = statement
        self.table = table
        self.columns = list(table.columns)
        self.charset = table.charset
        self.added = self.dropped = False

    def result(self) -> list[TableSchema]:
        if not (self.added or self.dropped or self.charset != self.table.charset):
            return []
        if not self.columns:
            raise SchemaDrift(f"{self.table.name} would have no columns after {self.statement.sql[:120]!r}")
        kind = DdlType.ADD_COLUMN if self.added else DdlType.DROP_COLUMN if self.dropped else DdlType.NONE
        return [
            replace(
                self.table,
                version=self.statement.commit_ts,
                columns=tuple(self.columns),
                query=self.statement.sql,
                ddl_type=kind,
                charset=self.charset,
            )
        ]

    def apply(self, cursor: Cursor) -> None:
        word = cursor.now.upper
        refuse = self.statement._refused
        if word == "ADD":
            cursor.next()
            self._add(cursor)
        elif word == "DROP":
            cursor.next()
            self._drop(cursor)
        elif word in _REFUSED_SPECS:
            raise refuse(f"ALTER TABLE … {_REFUSED_SPECS[word]}", table=self.table.name)
        elif word == "RENAME":
            cursor.next()
            if not cursor.any_word("INDEX", "KEY"):
                what = "RENAME COLUMN" if cursor.word("COLUMN") else "RENAME"
                raise refuse(f"ALTER TABLE … {what}", table=self.table.name)
        elif word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
            self._default_charset(cursor)
        # the rest (ENGINE, COMMENT, ALGORITHM, ORDER BY, ALTER COLUMN … DEFAULT, …) leaves the shape alone

    def _default_charset(self, cursor: Cursor) -> None:
        cursor.word("DEFAULT")
        if cursor.word("CHARSET") or cursor.word("CHARACTER", "SET"):
            cursor.symbol("=")
            self.charset = charset_name(cursor.name(), self.statement.default_charset)
        elif cursor.word("COLLATE"):
            cursor.symbol("=")
            self.charset = charset_of_collation(cursor.name())

    def _add(self, cursor: Cursor) -> None:
        name = self.table.name
        named = cursor.word("COLUMN")
        if not named:
            if cursor.word("CONSTRAINT"):
                if not cursor.any_word("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
                    cursor.name()
                else:
                    cursor.at -= 1
                if cursor.now.upper != "PRIMARY":
                    return
            if cursor.word("PRIMARY"):
                raise self.statement._refused("ALTER TABLE … ADD PRIMARY KEY", table=name)
            if cursor.now.upper in ("SYSTEM", "PERIOD"):
                raise self.statement._refused("ALTER TABLE … ADD SYSTEM VERSIONING", table=name)
            if cursor.now.upper in _HARMLESS_ADDS:
                return
        if_not_exists = cursor.word("IF", "NOT", "EXISTS")
        if cursor.now.kind == SYMBOL and cursor.now.text == "(":
            for part in split_commas(cursor.inside()):
                if part and part[0].upper not in _TABLE_ELEMENTS:
                    self._add_column(Cursor(cursor.sql, part), if_not_exists)
            return
        self._add_column(cursor, if_not_exists)

    def _add_column(self, cursor: Cursor, if_not_exists: bool) -> None:
        charset = self.charset or self.statement.default_charset
        definition = read_column(cursor, charset)
        if self._find(definition.column.name) is not None:
            if if_not_exists:
                return
            raise SchemaDrift(
                f"{self.table.name} has a column {definition.column.name} already, but the server adds it"
            )
        if definition.column.primary_key:
            raise self.statement._refused("ALTER TABLE … ADD COLUMN … PRIMARY KEY", table=self.table.name)
        self.added = True
        if definition.first:
            self.columns.insert(0, definition.column)
        elif definition.after is not None:
            self.columns.insert(self._place(definition.after) + 1, definition.column)
        else:
            self.columns.append(definition.column)

    def _drop(self, cursor: Cursor) -> None:
        if not cursor.word("COLUMN"):
            if cursor.word("PRIMARY"):
                raise self.statement._refused("ALTER TABLE … DROP PRIMARY KEY", table=self.table.name)
            if cursor.word("PARTITION") or cursor.now.upper in ("SYSTEM", "PERIOD"):
                raise self.statement._refused("ALTER TABLE … DROP PARTITION", table=self.table.name)
            if cursor.now.upper in _HARMLESS_DROPS:
                return
        if_exists = cursor.word("IF", "EXISTS")
        name = cursor.name()
        if if_exists and self._find(name) is None:
            return
        del self.columns[self._place(name)]
        self.dropped = True

    def _find(self, name: str) -> int | None:
        """Column names do not care for case."""
        return next((i for i, c in enumerate(self.columns) if c.name.lower() == name.lower()), None)

    def _place(self, name: str) -> int:
        at = self._find(name)
        if at is None:
            raise SchemaDrift(f"{self.table.name} has no column {name}, but the server changes it")
        return at


def _primary_key(cursor: Cursor) -> list[str]:
    """The columns of `[CONSTRAINT [name]] PRIMARY KEY [name] [USING x] (…)`; empty for other elements."""
    if cursor.word("CONSTRAINT") and cursor.now.upper != "PRIMARY":
        cursor.name()
    if not cursor.word("PRIMARY"):
        return []
    while not cursor.done:
        if cursor.now.kind == SYMBOL and cursor.now.text == "(":
            return key_columns(cursor.inside())
        cursor.next()
    return []


def _with_key(columns: list[Column], key: list[str], table: TableSchema) -> tuple[Column, ...]:
    wanted = {name.lower() for name in key}
    missing = wanted - {column.name.lower() for column in columns}
    if missing or not columns:
        raise SchemaDrift(f"{table.name}: no columns, or a key of columns that are not there: {table.query[:120]!r}")
    return tuple(
        replace(column, primary_key=True, nullable=False) if column.name.lower() in wanted else column
        for column in columns
    )
