"""Statements of real migrations, one file a tool: what it logs, and what a server makes of it.

Each line is a statement and the tables that are other ones after it, by the server's own word (MariaDB 10.11; in
`mysql-8.jsonl`, which MariaDB does not understand, by MySQL's manual). A table is a list of columns, each with name, type,
whether it may be null, whether it is in the primary key, charset and default; null if the table is gone.

    python -m tests.schema.ddl.migrations.record TOOL …      asks a server again
"""
