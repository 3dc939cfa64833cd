"""Reads the clauses of ALTER TABLE, whatever order they come in."""

from __future__ import annotations

from dataclasses import replace

from penstock.schema.ddl.alter import Alteration, Redefinition
from penstock.schema.ddl.columns import Defaults, is_computed, read_column, read_default, takes_charset, versioned
from penstock.schema.ddl.table_body import is_key_or_check, period_columns, primary_key, value_of
from penstock.schema.ddl.tokens import NAME, SYMBOL, WORD, TokenReader, Unreadable, split_commas
from penstock.schema.ddl.types import charset_name, collation_charset
from penstock.schema.model import DdlType

_KEYS = ("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK", "VECTOR")
# Work on partitions in which rows stay. Nothing but partition names follows. Those with a type change the definition.
_PARTITION_WORK: dict[str, DdlType | None] = {
    **dict.fromkeys(["ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "REPAIR", "UPGRADE"]),
    "COALESCE": DdlType.REORGANIZE_PARTITION,
    "REORGANIZE": DdlType.REORGANIZE_PARTITION,
    "REMOVE": DdlType.REMOVE_PARTITIONING,
}
# Options that are words of their own, without a value.
_FLAGS = frozenset(
    ["FORCE", "ENABLE", "DISABLE", "KEYS", "VALIDATION", "WITHOUT", "WITH", "SECONDARY_LOAD", "PERSISTENT"]
)
_FLAGS |= {"SECONDARY_UNLOAD", "NOWAIT", "ALL"}
# Options whose `=` may be left out.
_VALUED = frozenset(
    [
        "ALGORITHM",
        "LOCK",
        "ENGINE",
        "TYPE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHECKSUM",
        "TABLE_CHECKSUM",
        "COMMENT",
        "COMPRESSION",
        "CONNECTION",
        "DELAY_KEY_WRITE",
        "ENCRYPTION",
        "ENCRYPTED",
        "ENCRYPTION_KEY_ID",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "MAX_ROWS",
        "MIN_ROWS",
        "PACK_KEYS",
        "PAGE_CHECKSUM",
        "PAGE_COMPRESSED",
        "PAGE_COMPRESSION_LEVEL",
        "PASSWORD",
        "ROW_FORMAT",
        "SECONDARY_ENGINE",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "STORAGE",
        "TRANSACTIONAL",
        "UNION",
        "AUTOEXTEND_SIZE",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "NODEGROUP",
        "DIRECTORY",
        "SEQUENCE",
        "RAID_TYPE",
        "RAID_CHUNKS",
        "RAID_CHUNKSIZE",
        "WAIT",
    ]
)


def read_alter(reader: TokenReader, defaults: Defaults) -> Alteration:
    """Everything after the table's name. Raises `Unreadable` for a clause that nobody knows.

    `defaults` has the charset of the table as it was. A statement that changes it changes it for its own columns too,
    so the clauses are looked through for it first.
    """
    alteration = Alteration()
    parts = split_commas(reader.rest())
    for part in parts:
        _find_charset(TokenReader(reader.sql, part), alteration, defaults)
    alteration.charset = alteration.charset or alteration.converts_to
    inherited = replace(defaults, charset=alteration.charset or defaults.charset, converts_to=alteration.converts_to)
    clauses = _Clauses(alteration, inherited)
    for part in parts:
        inner = TokenReader(reader.sql, part)
        while not inner.done:
            if not clauses.read(inner):
                return alteration
    return alteration


def _find_charset(reader: TokenReader, alteration: Alteration, defaults: Defaults) -> None:
    """`[DEFAULT] CHARACTER SET`, `COLLATE` and `CONVERT TO CHARACTER SET` among the table's options."""
    if reader.now.upper in ("ADD", "MODIFY", "CHANGE", "ALTER", "DROP", "RENAME", "ORDER", "PARTITION", "EXCHANGE"):
        return
    converts = reader.word("CONVERT", "TO")
    charset: str | None = None
    collation: str | None = None
    while not reader.done:
        if reader.now.upper in ("CHARSET", "CHARACTER", "CHAR", "COLLATE"):
            alteration.beside = DdlType.MODIFY_TABLE_CHARSET  # of the same charset another collation, maybe
        if takes_charset(reader):
            reader.symbol("=")
            charset = charset_name(value_of(reader), defaults.database_charset)
        elif reader.word("COLLATE"):
            reader.symbol("=")
            collation = collation_charset(value_of(reader))
        else:
            reader.next()
    if converts:
        alteration.converts_to = charset or collation
    else:
        alteration.charset = charset or collation or alteration.charset


class _Clauses:
    def __init__(self, alteration: Alteration, defaults: Defaults) -> None:
        self.alteration = alteration
        self.defaults = defaults

    def read(self, reader: TokenReader) -> bool:
        """Takes one clause or option. False if the rest of the statement is names that say nothing about columns."""
        if reader.any_word("WAIT", "NOWAIT"):
            if reader.now.kind not in (WORD, NAME, SYMBOL):
                reader.next()
        elif reader.word("ADD"):
            return self._add(reader)
        elif reader.word("DROP"):
            return self._drop(reader)
        elif reader.word("MODIFY"):
            reader.word("COLUMN")
            self._modify(reader, reader.word("IF", "EXISTS"))
        elif reader.word("CHANGE"):
            reader.word("COLUMN")
            if_exists = reader.word("IF", "EXISTS")
            old = reader.name()
            self._redefine(Redefinition(read_column(reader, self.defaults), old, if_exists))
        elif reader.word("RENAME"):
            self._rename(reader)
        elif reader.word("ALTER"):
            self._alter_column(reader)
        elif reader.word("ORDER", "BY"):
            return False
        elif reader.word("PARTITION", "BY"):
            self.alteration.beside = DdlType.ALTER_PARTITIONING
            return False
        elif reader.word("CONVERT"):
            return self._convert(reader)
        elif reader.now.upper in ("TRUNCATE", "EXCHANGE", "IMPORT", "DISCARD") or reader.now.upper in _PARTITION_WORK:
            return self._partitions(reader)
        else:
            _option(reader)
        return True

    def _add(self, reader: TokenReader) -> bool:
        alteration = self.alteration
        if not reader.word("COLUMN"):
            if reader.word("PARTITION"):
                alteration.beside = DdlType.ADD_PARTITION
                return False
            if reader.now.upper == "SYSTEM" and reader.ahead().upper == "VERSIONING":
                raise versioned()
            if reader.word("PERIOD", "FOR"):
                alteration.not_null += period_columns(reader)
                return True
            if is_key_or_check(reader):
                self._add_key(reader)
                return True
        if_not_exists = reader.word("IF", "NOT", "EXISTS")
        if not reader.sees("("):
            alteration.redefinitions.append(Redefinition(read_column(reader, self.defaults), None, if_not_exists))
            return True
        for part in split_commas(reader.inside()):
            inner = TokenReader(reader.sql, part)
            if is_key_or_check(inner):
                self._add_key(inner)
            else:
                alteration.redefinitions.append(Redefinition(read_column(inner, self.defaults), None, if_not_exists))
        return True

    def _add_key(self, reader: TokenReader) -> None:
        start = reader.at
        key = primary_key(reader)
        if key:
            self.alteration.key = key
            words = [token.upper for token in reader.tokens[start : reader.at]]
            self.alteration.key_if_missing = "EXISTS" in words
        else:
            words = [token.upper for token in reader.tokens[start:]]
            self.alteration.beside = DdlType.ADD_FOREIGN_KEY if "FOREIGN" in words else DdlType.ADD_INDEX
        reader.rest()

    def _drop(self, reader: TokenReader) -> bool:
        alteration = self.alteration
        if not reader.word("COLUMN"):
            if reader.word("PRIMARY", "KEY"):
                alteration.drops_key = True
                return True
            if reader.word("PARTITION"):
                alteration.rows_without_events = DdlType.DROP_PARTITION
                return False
            if reader.now.upper == "SYSTEM" and reader.ahead().upper == "VERSIONING":
                raise versioned()
            if reader.word("PERIOD", "FOR") or reader.any_word("FOREIGN", "CHECK"):
                alteration.beside = DdlType.DROP_FOREIGN_KEY
                reader.rest()
                return True
            if reader.any_word("INDEX", "KEY", "CONSTRAINT"):
                reader.word("IF", "EXISTS")
                alteration.beside = DdlType.DROP_INDEX
                alteration.drops_key = alteration.drops_key or reader.name().upper() == "PRIMARY"
                return True
        if_exists = reader.word("IF", "EXISTS")
        alteration.drops[reader.name().lower()] = if_exists
        reader.any_word("CASCADE", "RESTRICT")
        return True

    def _modify(self, reader: TokenReader, if_exists: bool) -> None:
        definition = read_column(reader, self.defaults)
        self._redefine(Redefinition(definition, definition.column.name, if_exists))

    def _redefine(self, one: Redefinition) -> None:
        self.alteration.redefinitions.append(one)
        # It may change what a schema does not have: AUTO_INCREMENT, ON UPDATE, how a column is generated.
        self.alteration.beside = DdlType.MODIFY_COLUMN

    def _rename(self, reader: TokenReader) -> None:
        if reader.any_word("INDEX", "KEY"):
            self.alteration.beside = DdlType.RENAME_INDEX
            reader.rest()
            return
        if reader.now.upper == "COLUMN" and reader.ahead().kind in (WORD, NAME):
            reader.next()
            if_exists = reader.word("IF", "EXISTS")
            old = reader.name()
            if not reader.word("TO"):
                raise reader.unreadable()
            self.alteration.renames[old.lower()] = reader.name()
            if if_exists:
                self.alteration.missing_ok.add(old.lower())
            return
        if not reader.any_word("TO", "AS"):
            reader.symbol("=")
        self.alteration.new_name = reader.qualified()

    def _alter_column(self, reader: TokenReader) -> None:
        if reader.any_word("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            reader.rest()
            return
        reader.word("COLUMN")
        if_exists = reader.word("IF", "EXISTS")
        name = reader.name().lower()
        if reader.word("SET", "DEFAULT"):
            self.alteration.defaults[name] = read_default(reader)
            self.alteration.computed |= {name} if is_computed(reader) else set()
        elif reader.word("DROP", "DEFAULT"):
            self.alteration.defaults[name] = None
        elif reader.word("SET") and reader.any_word("VISIBLE", "INVISIBLE"):
            return
        else:
            raise reader.unreadable()
        if if_exists:
            self.alteration.missing_ok.add(name)

    def _convert(self, reader: TokenReader) -> bool:
        if reader.word("TO"):
            while not reader.done and (takes_charset(reader) or reader.word("COLLATE")):
                reader.symbol("=")
                reader.next()
            return True
        # MariaDB: a partition becomes a table, or a table a partition
        self.alteration.rows_without_events = DdlType.EXCHANGE_PARTITION
        if reader.word("PARTITION"):
            reader.name()
            if not reader.word("TO", "TABLE"):
                raise reader.unreadable()
            self.alteration.made_from_partition = reader.qualified()
        elif reader.word("TABLE"):
            self.alteration.exchanged = reader.qualified()
        else:
            raise reader.unreadable()
        return False

    def _partitions(self, reader: TokenReader) -> bool:
        word = reader.next().upper
        if word in ("IMPORT", "DISCARD"):
            raise Unreadable(f"{word} TABLESPACE: rows come or go that are not in the binlog")
        if not (reader.any_word("PARTITION", "PARTITIONING") or word in ("FORCE",)):
            reader.at -= 1
            raise reader.unreadable()
        if word == "TRUNCATE":
            self.alteration.rows_without_events = DdlType.TRUNCATE_PARTITION
        elif word == "EXCHANGE":
            reader.name()
            if not reader.word("WITH", "TABLE"):
                raise reader.unreadable()
            self.alteration.rows_without_events = DdlType.EXCHANGE_PARTITION
            self.alteration.exchanged = reader.qualified()
        else:
            self.alteration.beside = _PARTITION_WORK.get(word)
        return False


def _option(reader: TokenReader) -> None:
    """Takes one table option. `DATA DIRECTORY`, `DEFAULT CHARSET` and the like are two words."""
    reader.any_word("DEFAULT", "DATA", "INDEX")
    if takes_charset(reader) or reader.word("COLLATE"):
        reader.symbol("=")
        reader.next()
        return
    word = reader.now.upper
    named = reader.now.kind in (WORD, NAME) and reader.ahead().text == "="
    if word in _FLAGS and not named:
        reader.next()
    elif word in _VALUED or named:  # any engine may have options of its own: name=value
        reader.next()
        reader.symbol("=")
        if reader.sees("("):
            reader.inside()
        else:
            reader.next()
    else:
        raise reader.unreadable()
