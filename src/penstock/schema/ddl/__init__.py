"""DDL statements → the versions of tables and databases that they make.

| module | job |
|---|---|
| `tokens.py` | SQL text → tokens, by the session's sql_mode |
| `session.py` | a statement and what its session says about how to read it |
| `types.py`, `columns.py` | column types and definitions |
| `table_body.py` | columns, key and options of CREATE TABLE |
| `alter_clauses.py`, `alter.py` | the clauses of ALTER TABLE; applying them |
| `mentions.py` | which tables a statement names that is not understood |
| `statement.py` | the statements |
| `show_create.py` | what SHOW CREATE TABLE prints |
"""

from penstock.schema.ddl.session import Statement
from penstock.schema.ddl.show_create import table_from_show_create
from penstock.schema.ddl.statement import apply_ddl, is_ddl, leading_word, parked, tables_arrived

__all__ = [
    "Statement",
    "apply_ddl",
    "is_ddl",
    "leading_word",
    "parked",
    "table_from_show_create",
    "tables_arrived",
]
