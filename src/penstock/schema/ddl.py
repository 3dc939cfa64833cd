"""DDL statements → the schemas they make.

The parser is our own (docs/decisions/0005-ddl-is-read-by-our-own-parser.md): general SQL parsers give up on much of
what servers log (`ADD COLUMN (a INT, b INT)`, `NATIONAL VARCHAR`, `POINT`, MariaDB's clauses), and most of a statement
does not matter for the shape of a table.

There are three outcomes: new schemas; an empty list, if no followed table changes its shape; or `NotSupported`, if a
followed table changes in a way that this version cannot follow. Nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.binlog.charset import charset_of_collation
from penstock.errors import BadInput, NotSupported
from penstock.schema.column_ddl import charset_name, key_columns, read_column
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.tokens import NAME, SYMBOL, WORD, TokenReader, split_commas, tokens_of

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
    """The schemas in force after `sql`, each with `version` = `commit_ts`; empty if no followed table changes.

    `lookup(schema, table)` gives the schema in force before, or None for a table that is not followed.
    `default_charset` is the database's. A database itself is a `TableSchema` with an empty table name.
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
        self.reader = TokenReader(sql)

    def apply(self) -> list[TableSchema]:
        reader = self.reader
        if reader.word("CREATE"):
            reader.word("OR", "REPLACE")
            if reader.word("TEMPORARY"):
                return []
            if reader.any_word("DATABASE", "SCHEMA"):
                reader.word("IF", "NOT", "EXISTS")
                return [self._database(reader.name(), DdlType.CREATE_SCHEMA)]
            if reader.word("SEQUENCE"):
                raise self._refused(
                    "CREATE SEQUENCE",
                    hint="use AUTO_INCREMENT instead, and start after this statement with a new state_dir",
                )
            return self._create_table() if reader.word("TABLE") else []
        if reader.word("DROP"):
            if reader.word("TEMPORARY"):
                return []
            if reader.any_word("DATABASE", "SCHEMA"):
                reader.word("IF", "EXISTS")
                return [self._database(reader.name(), DdlType.DROP_SCHEMA)]
            return self._drop_tables() if reader.any_word("TABLE", "TABLES") else []
        if reader.word("ALTER"):
            reader.any_word("ONLINE", "OFFLINE")
            reader.word("IGNORE")
            return self._alter_table() if reader.word("TABLE") else []
        if reader.word("RENAME"):
            if reader.any_word("TABLE", "TABLES"):
                self._refuse_followed("RENAME TABLE")
            return []
        reader.word("TRUNCATE")
        reader.word("TABLE")
        self._refuse_followed("TRUNCATE TABLE")
        return []

    def _database(self, name: str, kind: DdlType) -> TableSchema:
        return TableSchema(name, "", self.commit_ts, (), self.sql, kind)

    def _target(self) -> tuple[str, str]:
        schema, table = self.reader.qualified()
        return schema or self.default_schema, table

    def _refused(self, what: str, *, table: str = "", hint: str = "") -> NotSupported:
        on = f" of {table}" if table else ""
        return NotSupported(
            f"{what}{on} is not supported yet: {self.sql[:120]!r}",
            hint=hint or "leave the table out (source.tables.exclude), or start after the change with a new state_dir",
        )

    def _refuse_followed(self, what: str) -> None:
        """Raises if any table named in the rest of the statement is followed."""
        reader = self.reader
        while not reader.done:
            if reader.now.kind in (NAME, WORD):
                schema, table = self._target()
                if self._known(schema, table):
                    raise self._refused(what, table=f"{schema}.{table}")
            else:
                reader.next()

    def _known(self, schema: str, table: str) -> TableSchema | None:
        if schema.lower() in SYSTEM_SCHEMAS:
            return None
        known = self.lookup(schema, table)
        return None if known is None or known.dropped else known

    def _create_table(self) -> list[TableSchema]:
        reader = self.reader
        if_not_exists = reader.word("IF", "NOT", "EXISTS")
        schema, table = self._target()
        if schema.lower() in SYSTEM_SCHEMAS:
            return []
        if if_not_exists and self._known(schema, table):
            return []
        made = TableSchema(schema, table, self.commit_ts, (), self.sql, DdlType.CREATE_TABLE)
        if reader.word("LIKE"):
            return [self._like(made)]
        if not (reader.now.kind == SYMBOL and reader.now.text == "("):
            raise self._refused("CREATE TABLE … SELECT", table=made.name)
        body = reader.inside()
        if body and body[0].upper == "LIKE":
            reader = self.reader = TokenReader(self.sql, body[1:])
            return [self._like(made)]
        charset = self._table_options(made)
        columns: list[Column] = []
        key: list[str] = []
        for part in split_commas(body):
            if not part:
                raise reader.unreadable()
            inner = TokenReader(self.sql, part)
            first = part[0].upper
            if first in _TABLE_ELEMENTS or (first == "PERIOD" and len(part) > 1 and part[1].upper == "FOR"):
                if first == "PERIOD":
                    raise self._refused("a system-versioned table", table=made.name)
                key = _primary_key(inner) or key
                continue
            columns.append(read_column(inner, charset).column)
        return [replace(made, columns=_with_key(columns, key, made), charset=charset)]

    def _table_options(self, made: TableSchema) -> str:
        """Reads the options after the columns. Returns the table's default charset."""
        reader = self.reader
        charset: str | None = None
        collation: str | None = None
        while not reader.done:
            if reader.word("CHARSET") or reader.word("CHARACTER", "SET") or reader.word("CHAR", "SET"):
                reader.symbol("=")
                charset = charset_name(reader.name(), self.default_charset)
            elif reader.word("COLLATE"):
                reader.symbol("=")
                collation = charset_of_collation(reader.name())
            elif reader.word("SYSTEM", "VERSIONING"):
                raise self._refused("a system-versioned table", table=made.name)
            elif reader.any_word("SELECT", "WITH") == "SELECT":
                raise self._refused("CREATE TABLE … SELECT", table=made.name)
            elif reader.word("PARTITION", "BY"):
                break  # what follows says nothing about columns
            elif reader.now.kind == SYMBOL and reader.now.text == "(":
                reader.skip_group()
            else:
                reader.next()
        return charset or collation or self.default_charset

    def _like(self, made: TableSchema) -> TableSchema:
        schema, table = self._target()
        model = self._known(schema, table)
        if model is None:
            raise self._refused(f"CREATE TABLE LIKE {schema}.{table}, which is not known,", table=made.name)
        return replace(made, columns=model.columns, charset=model.charset)

    def _drop_tables(self) -> list[TableSchema]:
        reader = self.reader
        reader.word("IF", "EXISTS")
        dropped: list[TableSchema] = []
        while True:
            schema, table = self._target()
            if self._known(schema, table):
                dropped.append(TableSchema(schema, table, self.commit_ts, (), self.sql, DdlType.DROP_TABLE))
            if not reader.symbol(","):
                return dropped

    def _alter_table(self) -> list[TableSchema]:
        reader = self.reader
        reader.word("IF", "EXISTS")
        schema, table = self._target()
        known = self._known(schema, table)
        if known is None:
            return []  # not followed; or not known yet, then its next table map tells its shape
        if reader.word("WAIT"):
            reader.next()
        reader.word("NOWAIT")
        change = _Alteration(self, known)
        for part in split_commas(reader.tokens[reader.at : -1]):
            if part:
                change.apply(TokenReader(self.sql, part))
        return change.result()


class _Alteration:
    """The columns of a table while the clauses of one ALTER TABLE are applied to them."""

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

    def apply(self, reader: TokenReader) -> None:
        word = reader.now.upper
        refuse = self.statement._refused
        if word == "ADD":
            reader.next()
            self._add(reader)
        elif word == "DROP":
            reader.next()
            self._drop(reader)
        elif word in _REFUSED_SPECS:
            raise refuse(f"ALTER TABLE … {_REFUSED_SPECS[word]}", table=self.table.name)
        elif word == "RENAME":
            reader.next()
            if not reader.any_word("INDEX", "KEY"):
                what = "RENAME COLUMN" if reader.word("COLUMN") else "RENAME"
                raise refuse(f"ALTER TABLE … {what}", table=self.table.name)
        elif word in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE"):
            self._default_charset(reader)
        # All other clauses (ENGINE, COMMENT, ALGORITHM, ORDER BY, ALTER COLUMN … DEFAULT, …) leave the shape as it is.

    def _default_charset(self, reader: TokenReader) -> None:
        reader.word("DEFAULT")
        if reader.word("CHARSET") or reader.word("CHARACTER", "SET"):
            reader.symbol("=")
            self.charset = charset_name(reader.name(), self.statement.default_charset)
        elif reader.word("COLLATE"):
            reader.symbol("=")
            self.charset = charset_of_collation(reader.name())

    def _add(self, reader: TokenReader) -> None:
        name = self.table.name
        named = reader.word("COLUMN")
        if not named:
            if reader.word("CONSTRAINT"):
                if not reader.any_word("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
                    reader.name()
                else:
                    reader.at -= 1
                if reader.now.upper != "PRIMARY":
                    return
            if reader.word("PRIMARY"):
                raise self.statement._refused("ALTER TABLE … ADD PRIMARY KEY", table=name)
            if reader.now.upper in ("SYSTEM", "PERIOD"):
                raise self.statement._refused("ALTER TABLE … ADD SYSTEM VERSIONING", table=name)
            if reader.now.upper in _HARMLESS_ADDS:
                return
        if_not_exists = reader.word("IF", "NOT", "EXISTS")
        if reader.now.kind == SYMBOL and reader.now.text == "(":
            for part in split_commas(reader.inside()):
                if part and part[0].upper not in _TABLE_ELEMENTS:
                    self._add_column(TokenReader(reader.sql, part), if_not_exists)
            return
        self._add_column(reader, if_not_exists)

    def _add_column(self, reader: TokenReader, if_not_exists: bool) -> None:
        charset = self.charset or self.statement.default_charset
        definition = read_column(reader, charset)
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

    def _drop(self, reader: TokenReader) -> None:
        if not reader.word("COLUMN"):
            if reader.word("PRIMARY"):
                raise self.statement._refused("ALTER TABLE … DROP PRIMARY KEY", table=self.table.name)
            if reader.word("PARTITION") or reader.now.upper in ("SYSTEM", "PERIOD"):
                raise self.statement._refused("ALTER TABLE … DROP PARTITION", table=self.table.name)
            if reader.now.upper in _HARMLESS_DROPS:
                return
        if_exists = reader.word("IF", "EXISTS")
        name = reader.name()
        if if_exists and self._find(name) is None:
            return
        del self.columns[self._place(name)]
        self.dropped = True

    def _find(self, name: str) -> int | None:
        """Where the column stands; None if there is none. Column names ignore case."""
        return next((i for i, c in enumerate(self.columns) if c.name.lower() == name.lower()), None)

    def _place(self, name: str) -> int:
        at = self._find(name)
        if at is None:
            raise SchemaDrift(f"{self.table.name} has no column {name}, but the server changes it")
        return at


def _primary_key(reader: TokenReader) -> list[str]:
    """The columns of `[CONSTRAINT [name]] PRIMARY KEY [name] [USING x] (…)`; empty for other elements."""
    if reader.word("CONSTRAINT") and reader.now.upper != "PRIMARY":
        reader.name()
    if not reader.word("PRIMARY"):
        return []
    while not reader.done:
        if reader.now.kind == SYMBOL and reader.now.text == "(":
            return key_columns(reader.inside())
        reader.next()
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
