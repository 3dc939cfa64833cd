"""Random DDL over a few tables and columns. The server decides which statements are valid."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.schema.ddl.server import Judge

_TABLES = ("t", "u", "v")
_COLUMNS = ("a", "b", "c", "d", "E")
_TYPES = {
    "int": "5", "int(5) unsigned": "7", "bigint": "-3", "smallint unsigned zerofill": "1", "tinyint(1)": "0", "bool": "TRUE",
    "varchar(20)": "'x'", "varchar(9) charset latin1": "'it''s'", "char(3) collate utf8mb4_bin": "'y'", "char": "'z'",
    "text": None, "tinytext": None, "mediumtext charset utf8mb3": None, "text(300)": None, "enum('a','b')": "'a'",
    "set('x','y') charset latin1": "'x'", "decimal(10,2)": "1.50", "decimal": "3", "numeric(5)": "4", "float": "1.5",
    "double": "2.5", "float(7,3)": "1.5", "real": "2.5", "date": "'2020-01-01'", "time(2)": None, "year": None,
    "datetime(3)": "current_timestamp(3)", "timestamp": None, "timestamp(6)": "current_timestamp(6)", "json": None,
    "blob": None, "blob(70000)": None, "binary(4)": None, "varbinary(9)": None, "bit(5)": "b'101'", "point": None,
    "inet6": None, "uuid": None, "national varchar(5)": "'n'", "nchar(3)": None, "long varchar": None, "dec(4,1)": "1.5",
    "int8": "8", "varchar(10) binary": "'q'", "char(5) ascii": "'w'", "character varying(7)": None,
}  # fmt: skip
_CHARSETS = ("utf8mb4", "utf8mb3", "latin1", "gbk", "utf8mb4 collate utf8mb4_bin")

_columns = st.sampled_from(_COLUMNS)


@st.composite
def _definition(draw: st.DrawFn, name: str | None = None) -> str:
    kind = draw(st.sampled_from(sorted(_TYPES)))
    default = _TYPES[kind]
    attributes = ["", " not null", " null", " comment 'a, (b)'"]
    if default is not None:
        attributes += [f" default {default}", f" not null default {default}"]
    return f"{name or draw(_columns)} {kind}{draw(st.sampled_from(attributes))}"


@st.composite
def _place(draw: st.DrawFn, known: st.SearchStrategy[str]) -> str:
    where = draw(st.sampled_from(["", "", " first", " after"]))
    return where + (f" {draw(known)}" if where == " after" else "")


@st.composite
def _clause(draw: st.DrawFn, columns: list[str]) -> str:
    """A clause of ALTER TABLE, for a table that most likely has these columns."""
    known = st.sampled_from([*columns * 3, *_COLUMNS])
    new = st.sampled_from([c for c in _COLUMNS if c not in columns] * 3 + [*_COLUMNS])
    kind = draw(st.integers(0, 15))
    if kind <= 2:
        return f"add {draw(_definition(draw(new)))}{draw(_place(known))}"
    if kind == 3:
        return f"add ({draw(_definition(draw(new)))}, {draw(_definition(draw(new)))})"
    column = draw(known)
    if kind == 4:
        return f"drop {draw(st.sampled_from(['', 'column ', 'if exists ']))}{column}"
    if kind <= 6:
        return f"modify {draw(_definition(column))}{draw(_place(known))}"
    if kind <= 8:
        return f"change {column} {draw(_definition(draw(new)))}{draw(_place(known))}"
    if kind == 9:
        return f"rename column {column} to {draw(new)}"
    if kind == 10:
        return f"alter {column} {draw(st.sampled_from(['drop default', 'set default 1', 'set default null']))}"
    if kind == 11:
        return f"add primary key ({', '.join(draw(st.lists(known, min_size=1, max_size=2, unique=True)))})"
    if kind == 12:
        return "drop primary key"
    if kind == 13:
        return f"convert to character set {draw(st.sampled_from(_CHARSETS))}"
    if kind == 14:
        return f"default character set {draw(st.sampled_from(_CHARSETS))}"
    return draw(
        st.sampled_from(
            ["engine=innodb", "comment='x'", f"add index ({column})", "force", "rename to v", "row_format=dynamic"]
        )
    )


@st.composite
def _create(draw: st.DrawFn, name: str) -> str:
    columns = draw(st.lists(_columns, min_size=1, max_size=4, unique=True))
    parts = [draw(_definition(column)) for column in columns]
    if draw(st.booleans()):
        parts.append(f"primary key ({draw(st.sampled_from(columns))})")
    options = draw(st.sampled_from(["", " charset latin1", " collate utf8mb3_bin", " default charset=gbk comment 'c'"]))
    replaces = draw(st.sampled_from(["create table", "create or replace table", "create table if not exists"]))
    return f"{replaces} {name} ({', '.join(parts)}){options}"


def statements(judge: Judge) -> st.SearchStrategy[str]:
    """One statement for the judge's two databases."""

    @st.composite
    def one(draw: st.DrawFn) -> str:
        def table() -> str:
            prefix = draw(st.sampled_from(["", "", "", *(f"{database}." for database in judge.databases)]))
            return prefix + draw(st.sampled_from(_TABLES))

        known = sorted((t for t in judge.catalog.tables() if t.columns), key=lambda t: t.name)
        kind = draw(st.integers(0, 19))
        if kind <= 3:
            return draw(_create(table()))
        if kind <= 13 and known:
            target = draw(st.sampled_from(known))
            columns = [column.name for column in target.columns]
            clauses = draw(st.lists(_clause(columns), min_size=1, max_size=3))
            return f"alter table {target.name} {', '.join(clauses)}"
        if kind == 14:
            return f"create table {table()} like {table()}"
        if kind == 15:
            return f"drop table if exists {table()}, {table()}"
        if kind <= 17:
            pairs = [f"{table()} to {table()}" for _ in range(draw(st.integers(1, 3)))]
            return f"rename table {', '.join(pairs)}"
        if kind == 18:
            return f"truncate table {table()}"
        return f"alter database {judge.databases[0]} character set {draw(st.sampled_from(_CHARSETS))}"

    return one()
