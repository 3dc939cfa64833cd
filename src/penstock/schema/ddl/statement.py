"""A DDL statement → the versions of tables and databases that it makes.

The parser is our own (docs/decisions/0005-ddl-is-read-by-our-own-parser.md). It reads what changes tables, knows by name
what does not, and guesses nothing: what it does not understand parks the tables that the statement names.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.schema.catalog import SYSTEM_SCHEMAS, Catalog
from penstock.schema.ddl.alter import Alteration, altered
from penstock.schema.ddl.alter_clauses import read_alter
from penstock.schema.ddl.columns import Defaults, takes_charset
from penstock.schema.ddl.mentions import tables_touched
from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.table_body import read_body, value_of
from penstock.schema.ddl.tokens import SYMBOL, TokenReader, Unreadable, tokens_of
from penstock.schema.ddl.types import charset_name, collation_charset
from penstock.schema.model import DdlType, SchemaDrift, TableSchema
from penstock.schema.parking import SELECTED_ROWS_MISSING

_TABLE_WORDS = frozenset(["CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"])
_COMMITTING_WORDS = _TABLE_WORDS | {
    "GRANT", "REVOKE", "FLUSH", "ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "CHECKSUM", "INSTALL", "UNINSTALL",
}  # fmt: skip
# What CREATE, ALTER and DROP may name that holds no rows of tables, after words such as OR REPLACE and DEFINER=….
_HARMLESS = frozenset(
    [
        "AGGREGATE",
        "EVENT",
        "FUNCTION",
        "INSTANCE",
        "JSON",
        "LIBRARY",
        "LOGFILE",
        "PACKAGE",
        "PREPARE",
        "PROCEDURE",
        "RESOURCE",
        "ROLE",
        "SERVER",
        "TABLESPACE",
        "TRIGGER",
        "UNDO",
        "USER",
        "VIEW",
    ]
)
_BEFORE_OBJECT = frozenset(["ALGORITHM", "DEFINER", "SQL", "MATERIALIZED"])
_INDEX_WORDS = frozenset(["INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"])

PARKED_BEFORE = "it came while the table was parked"
_NO_SUCH_TABLE = 1051  # DROP TABLE a, b: one of them is not there, the other one is dropped

Name = tuple[str, str]


def leading_word(sql: str) -> str:
    """The statement's first word in upper case, inside an executable comment too; empty if there is none."""
    try:
        tokens = tokens_of(sql, limit=2)
    except Unreadable:
        return ""
    first = tokens[0]
    return tokens[1].upper if first.kind == SYMBOL and first.text == "(" else first.upper


def is_ddl(sql: str) -> bool:
    """Whether a logged statement is one that commits by itself and may change tables, users or indexes."""
    return leading_word(sql) in _COMMITTING_WORDS


def apply_ddl(statement: Statement, catalog: Catalog, commit_ts: int) -> list[TableSchema]:
    """The versions that the statement makes, one for each name whose table is another afterwards; each has `version` =
    `commit_ts`. Empty if no table of the catalog, and no new one, changes.

    Never raises for what a statement says. One that is not understood parks the tables that it may touch: their new
    version has the kind UNKNOWN, no columns, and the reason. So does every later statement that alters such a table:
    whoever resumes it applies them in order.
    """
    try:
        tokens = tokens_of(statement.sql, statement.sql_mode, limit=1, mariadb=statement.mariadb)
        if tokens[0].upper not in _TABLE_WORDS:
            return []
        return _Application(statement, catalog, commit_ts).apply()
    except (Unreadable, SchemaDrift) as error:
        return parked(statement, catalog, commit_ts, error.message)


def tables_arrived(statement: Statement, catalog: Catalog) -> list[Name]:
    """The names under which a statement puts tables that the catalog does not know: of what they hold the log has nothing."""
    try:
        application = _Application(statement, catalog, 0)
        if application.reader.now.upper in ("RENAME", "ALTER"):
            application.apply()
        return application.arrived
    except (Unreadable, SchemaDrift):
        return []


def parked(statement: Statement, catalog: Catalog, commit_ts: int, reason: str) -> list[TableSchema]:
    """The tables that a statement may touch, their shape unknown from here on; those too that are parked already."""
    touched = (table for table in tables_touched(statement, catalog) if not table.is_sequence)
    return [_parked(table.schema, table.table, statement.sql, commit_ts, reason) for table in touched]


def _parked(schema: str, table: str, sql: str, commit_ts: int, reason: str) -> TableSchema:
    return TableSchema(schema, table, commit_ts, (), sql, DdlType.UNKNOWN, reason=reason)


class _Application:
    def __init__(self, statement: Statement, catalog: Catalog, commit_ts: int) -> None:
        self.statement = statement
        self.catalog = catalog
        self.commit_ts = commit_ts
        self.reader = TokenReader(statement.sql, statement.tokens)
        self.arrived: list[Name] = []  # names that stand for tables that are not known, once the statement is applied

    def apply(self) -> list[TableSchema]:
        word = self.reader.next().upper
        if self.statement.error_code and word != "CREATE" and self.statement.error_code != _NO_SUCH_TABLE:
            raise Unreadable(f"the server logged it with error {self.statement.error_code}")
        if word == "CREATE":
            return self._create()
        if word == "ALTER":
            return self._alter()
        if word == "DROP":
            return self._drop()
        if word == "RENAME":
            return self._rename() if self.reader.any_word("TABLE", "TABLES") else []
        self.reader.word("TABLE")
        return self._truncate()

    # -- names -----------------------------------------------------------------------------------------------------

    def _target(self) -> Name:
        return self._resolve(self.reader.qualified())

    def _resolve(self, qualified: tuple[str | None, str]) -> Name:
        schema, table = qualified
        found = self.catalog.find(schema or self.statement.schema, table)
        if found is not None:
            return found.schema, found.table  # the server's spelling, where it ignores case
        return self.catalog.stored(schema or self.statement.schema, table)

    def _known(self, name: Name) -> TableSchema | None:
        """The table of this name; None for one that is not known, is parked or is a sequence."""
        found = self.catalog.find(*name)
        return None if found is None or found.parked or found.is_sequence else found

    def _held(self, name: Name) -> list[TableSchema]:
        """A version of a table that is parked: the statement is kept, and applied once the table is resumed."""
        found = self.catalog.find(*name)
        if found is None or not found.parked:
            return []
        return [_parked(found.schema, found.table, self.statement.sql, self.commit_ts, PARKED_BEFORE)]

    def _made(self, name: Name, kind: DdlType) -> TableSchema:
        return TableSchema(*name, self.commit_ts, (), self.statement.sql, kind)

    def _changed(self, table: TableSchema, kind: DdlType) -> TableSchema:
        """The same table, its rows changed by the statement."""
        return replace(table, version=self.commit_ts, query=self.statement.sql, ddl_type=kind, other="", reason="")

    def _defaults(self, schema: str, charset: str | None) -> Defaults:
        of_database = self.catalog.database_charset(schema) or self.statement.server_charset
        statement = self.statement
        return Defaults(
            charset or of_database,
            of_database,
            statement.sql_mode,
            explicit_timestamps=statement.explicit_timestamps,
            json_is_text=statement.mariadb,
        )

    # -- statements ------------------------------------------------------------------------------------------------

    def _create(self) -> list[TableSchema]:
        reader = self.reader
        replaces = reader.word("OR", "REPLACE")
        if reader.word("TEMPORARY"):
            return []
        if reader.word("TABLE"):
            return self._create_table(replaces)
        if reader.any_word("DATABASE", "SCHEMA"):
            return self._create_database(replaces)
        if reader.word("SEQUENCE"):
            reader.word("IF", "NOT", "EXISTS")
            name = self._target()
            return [] if name[0].lower() in SYSTEM_SCHEMAS else [self._made(name, DdlType.CREATE_SEQUENCE)]
        return self._create_index() or self._harmless()

    def _create_index(self) -> list[TableSchema]:
        """Reads `[ONLINE] [UNIQUE] INDEX name … ON table`; takes nothing."""
        reader = TokenReader(self.reader.sql, self.reader.tokens[self.reader.at :])
        reader.any_word("ONLINE", "OFFLINE")
        reader.any_word(*_INDEX_WORDS - {"INDEX"})
        if not reader.word("INDEX"):
            return []
        while not reader.done and not reader.word("ON"):
            reader.next()
        return [] if reader.done else self._with_index(self._resolve(reader.qualified()), DdlType.ADD_INDEX)

    def _with_index(self, name: Name, kind: DdlType) -> list[TableSchema]:
        """The table as it is: its columns do not change, but readers of a sink are told."""
        table = self._known(name)
        return self._held(name) if table is None else [self._changed(table, kind)]

    def _create_table(self, replaces: bool) -> list[TableSchema]:
        reader = self.reader
        if_not_exists = reader.word("IF", "NOT", "EXISTS")
        name = self._target()
        there = self.catalog.find(*name)
        if name[0].lower() in SYSTEM_SCHEMAS or (if_not_exists and not replaces and there is not None):
            return []
        if self.statement.error_code:  # OR REPLACE: the old table is gone, and there is no new one
            return [] if there is None else [self._made(name, DdlType.DROP_TABLE)]
        made = self._made(name, DdlType.CREATE_TABLE)
        try:
            model = self._model()
            if model is not None:
                return self._create_like(made, self._resolve(model))
            body = read_body(reader, lambda charset: self._defaults(name[0], charset))
        except (Unreadable, SchemaDrift) as error:
            return [_parked(*name, self.statement.sql, self.commit_ts, error.message)]
        if body.sequence:
            return [replace(made, ddl_type=DdlType.CREATE_SEQUENCE)]
        return [replace(made, columns=body.columns, charset=body.charset)]

    def _model(self) -> tuple[str | None, str] | None:
        """Takes `LIKE model` or `(LIKE model)`."""
        reader = self.reader
        if reader.word("LIKE"):
            return reader.qualified()
        if reader.sees("(") and reader.ahead().upper == "LIKE":
            return TokenReader(reader.sql, reader.inside()[1:]).qualified()
        if not reader.sees("("):
            raise Unreadable(SELECTED_ROWS_MISSING)
        return None

    def _create_like(self, made: TableSchema, model: Name) -> list[TableSchema]:
        found = self.catalog.find(*model)
        if found is not None and found.parked:
            reason = f"like {found.name}: {found.reason}"
            held = _parked(made.schema, made.table, made.query, self.commit_ts, reason)
            return [replace(held, other=found.name)]
        if found is None:
            # The model is not followed. The table is new and empty: its first table map tells its shape.
            there = self.catalog.find(made.schema, made.table)
            return [] if there is None else [replace(made, ddl_type=DdlType.DROP_TABLE)]
        return [replace(made, columns=found.columns, charset=found.charset, other=found.name)]

    def _create_database(self, replaces: bool) -> list[TableSchema]:
        if_not_exists = self.reader.word("IF", "NOT", "EXISTS")
        name = self.catalog.stored(self.reader.name(), "")
        if name[0].lower() in SYSTEM_SCHEMAS or (if_not_exists and self.catalog.has_database(name[0])):
            return []
        charset = self._database_charset() or self.statement.server_charset
        made = replace(self._made(name, DdlType.CREATE_SCHEMA), charset=charset)
        # One version a name and statement: the tables go one by one where the database is replaced.
        return [*(self._gone_tables(name[0]) if replaces else ()), made]

    def _gone_tables(self, schema: str) -> list[TableSchema]:
        return [
            self._made((table.schema, table.table), DdlType.DROP_TABLE)
            for table in self.catalog.tables()
            if self.catalog.stored(table.schema, "") == self.catalog.stored(schema, "")
        ]

    def _database_charset(self) -> str | None:
        """Takes the options of CREATE and ALTER DATABASE."""
        reader = self.reader
        charset: str | None = None
        collation: str | None = None
        while not reader.done:
            if takes_charset(reader):
                reader.symbol("=")
                charset = charset_name(value_of(reader), self.statement.server_charset)
            elif reader.word("COLLATE"):
                reader.symbol("=")
                collation = collation_charset(value_of(reader)) or collation
            else:
                reader.next()
        return charset or collation

    def _alter(self) -> list[TableSchema]:
        reader = self.reader
        reader.any_word("ONLINE", "OFFLINE")
        reader.word("IGNORE")
        if reader.word("TABLE"):
            return self._alter_table()
        if reader.any_word("DATABASE", "SCHEMA"):
            return self._alter_database()
        return [] if reader.word("SEQUENCE") else self._harmless()

    def _alter_database(self) -> list[TableSchema]:
        reader = self.reader
        is_option = reader.now.upper in ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "ENCRYPTION", "READ", "COMMENT")
        schema = self.statement.schema if is_option else reader.name()
        if schema.lower() in SYSTEM_SCHEMAS:
            return []
        charset = self._database_charset()
        if charset is None or charset == self.catalog.database_charset(schema):
            return []
        name = self.catalog.stored(schema, "")
        return [replace(self._made(name, DdlType.MODIFY_SCHEMA_CHARSET), charset=charset)]

    def _alter_table(self) -> list[TableSchema]:
        reader = self.reader
        if_exists = reader.word("IF", "EXISTS")
        name = self._target()
        if name[0].lower() in SYSTEM_SCHEMAS:
            return []
        table = self._known(name)
        defaults = self._defaults(name[0], table.charset if table else None)
        try:
            alteration = read_alter(reader, defaults)
        except Unreadable:
            if table is None and self.catalog.find(*name) is None:
                return self._parked_others()
            raise
        others = self._other_tables(alteration)
        if table is None:
            pairs = self._pairs(name, alteration)
            return (self._renamed(pairs, if_exists=if_exists) if pairs else self._held(name)) + others
        try:
            columns, kind = altered(alteration, table)
        except SchemaDrift as error:
            return [_parked(*name, self.statement.sql, self.commit_ts, error.message), *others]
        charset = alteration.charset or table.charset
        changed = replace(self._changed(table, kind), columns=columns, charset=charset)
        if alteration.exchanged or alteration.made_from_partition:
            other = self._resolve(alteration.exchanged or alteration.made_from_partition or (None, ""))
            changed = replace(changed, other=".".join(other))
        is_same = columns == table.columns and charset == table.charset and not alteration.rows_without_events
        is_same = is_same and not alteration.replaces
        pairs = self._pairs(name, alteration)
        if pairs:
            return self._renamed(pairs, {name: changed}) + others
        if is_same and alteration.beside is not None:
            changed = replace(changed, ddl_type=alteration.beside)
        return others if is_same and alteration.beside is None else [changed, *others]

    def _parked_others(self) -> list[TableSchema]:
        """A clause that nobody understands, of a table that is not followed: partitions it may exchange with one that
        is. Only a table that such a clause names is touched, not one that a constraint refers to."""
        clause = {"EXCHANGE", "CONVERT"} & {token.upper for token in self.reader.tokens}
        return parked(self.statement, self.catalog, self.commit_ts, "a clause not understood") if clause else []

    def _other_tables(self, alteration: Alteration) -> list[TableSchema]:
        """Tables beside the altered one whose rows the statement moves."""
        made: list[TableSchema] = []
        if alteration.exchanged:
            name = self._resolve(alteration.exchanged)
            table = self._known(name)
            made += self._held(name) if table is None else [self._changed(table, DdlType.EXCHANGE_PARTITION)]
        if alteration.made_from_partition:
            name = self._resolve(alteration.made_from_partition)
            reason = "a partition became this table: its rows are not in the binlog"
            made.append(_parked(*name, self.statement.sql, self.commit_ts, reason))
        return made

    def _pairs(self, name: Name, alteration: Alteration) -> list[tuple[Name, Name]]:
        if alteration.new_name is None or self._resolve(alteration.new_name) == name:
            return []
        return [(name, self._resolve(alteration.new_name))]

    def _drop(self) -> list[TableSchema]:
        reader = self.reader
        if reader.word("TEMPORARY"):
            return []
        if reader.any_word("DATABASE", "SCHEMA"):
            reader.word("IF", "EXISTS")
            name = self.catalog.stored(reader.name(), "")
            return [] if name[0].lower() in SYSTEM_SCHEMAS else [self._made(name, DdlType.DROP_SCHEMA)]
        if reader.any_word("TABLE", "TABLES", "SEQUENCE"):
            return self._drop_tables()
        if reader.word("INDEX"):
            return self._drop_index()
        return self._harmless()

    def _drop_tables(self) -> list[TableSchema]:
        reader = self.reader
        reader.word("IF", "EXISTS")
        dropped: list[TableSchema] = []
        while True:
            name = self._target()
            known = self.catalog.find(*name)
            if known is not None:
                dropped.append(self._made((known.schema, known.table), DdlType.DROP_TABLE))
            if not reader.symbol(","):
                return dropped

    def _drop_index(self) -> list[TableSchema]:
        reader = self.reader
        reader.word("IF", "EXISTS")
        index = reader.name()
        if not reader.word("ON"):
            return []
        if index.upper() != "PRIMARY":
            return self._with_index(self._target(), DdlType.DROP_INDEX)
        name = self._target()
        table = self._known(name)
        if table is None:
            return self._held(name)
        columns, kind = altered(Alteration(drops_key=True), table)
        return [replace(self._changed(table, kind), columns=columns)]

    def _truncate(self) -> list[TableSchema]:
        name = self._target()
        table = self._known(name)
        return self._held(name) if table is None else [self._changed(table, DdlType.TRUNCATE_TABLE)]

    # -- RENAME ----------------------------------------------------------------------------------------------------

    def _rename(self) -> list[TableSchema]:
        reader = self.reader
        if_exists = reader.word("IF", "EXISTS")
        pairs: list[tuple[Name, Name]] = []
        while True:
            old = self._target()
            if reader.word("WAIT"):
                reader.next()
            reader.word("NOWAIT")
            if not reader.word("TO"):
                raise reader.unreadable()
            pairs.append((old, self._target()))
            if not reader.symbol(","):
                return self._renamed(pairs, if_exists=if_exists)

    def _renamed(
        self, pairs: list[tuple[Name, Name]], changed: dict[Name, TableSchema] | None = None, *, if_exists: bool = False
    ) -> list[TableSchema]:
        """One version for each name that stands for another table afterwards. Renames happen from left to right, so
        that a name may be given and taken again. `changed`: tables that the same statement alters. `if_exists`: a
        table that is not there is passed over; it is not if its new name is taken."""
        now: dict[Name, tuple[TableSchema, Name] | None] = {}  # None: no table, or one that we do not know
        unknown: set[Name] = set()
        for old, new in pairs:
            if old == new:
                continue
            known = self.catalog.find(*old)
            taken = now[new] is not None if new in now else self.catalog.find(*new) is not None
            if if_exists and known is None and old not in now and taken:
                continue
            now[new] = now.get(old, (known, old) if known else None)
            now[old] = None
            unknown = unknown - {old, new} | ({new} if now[new] is None else set())
        self.arrived = sorted(unknown)
        destinations = dict(pairs)
        made: list[TableSchema] = []
        for name, found in now.items():
            before = self.catalog.find(*name)
            if found is None:
                if before is not None:
                    gone = self._made((before.schema, before.table), DdlType.RENAME_TABLE)
                    made.append(replace(gone, other=".".join(destinations.get(name, ()))))
                continue
            table, origin = found
            if origin == name or name[0].lower() in SYSTEM_SCHEMAS:
                continue
            table = (changed or {}).get(origin, table)
            kind = table.ddl_type if table.parked or table.is_sequence else DdlType.RENAME_TABLE
            moved = replace(self._changed(table, kind), schema=name[0], table=name[1], other=".".join(origin))
            made.append(replace(moved, reason=table.reason))
        return made

    # -- what holds no rows ------------------------------------------------------------------------------------------

    def _harmless(self) -> list[TableSchema]:
        """Views, routines, users and the like leave tables as they are. Raises `Unreadable` for what nobody knows."""
        reader = self.reader
        if reader.now.upper in _INDEX_WORDS or reader.any_word("ONLINE", "OFFLINE") or reader.now.upper in _HARMLESS:
            return []
        if reader.now.upper == "SPATIAL" or reader.word("DEFAULT", "ROLE"):
            return []
        if reader.now.upper in _BEFORE_OBJECT:
            return []  # ALGORITHM = …, DEFINER = …, SQL SECURITY …: of views and routines only
        raise reader.unreadable()
