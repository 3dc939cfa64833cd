"""What `penstock binlog` does: binlog files → changes, as lines or tables, and figures about them.

| module | job |
|---|---|
| `given_files.py` | the files that a user names, as a source |
| `schema_options.py` | tables from `--schema` and `--server` |
| `file_schemas.py` | the tables in force, as far as the files and those tell |
| `waiting.py` | parts of transactions whose end was not read yet, and held XA groups |
| `reading.py` | files → groups of committed transactions, and what is told between them |
| `group_origins.py` | which transaction each event of a group belongs to |
| `told_lines.py` | DDL, statements, XA outcomes and rollbacks as lines |
| `jsonl.py` | groups → JSON lines |
| `tables.py`, `table_files.py` | groups → columns; Parquet and Arrow files |
| `table_filter.py` | the tables that `--table` names |
| `decode.py` | the command |
| `stats.py` | figures about files |
"""
