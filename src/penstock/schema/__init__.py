"""What tables look like at each point of the log, and their decoded changes in columns.

| module | job |
|---|---|
| `model.py` | a table's schema at one version; families of column types |
| `quoting.py` | names and strings → SQL |
| `catalog.py` | the tables and databases in force, by name |
| `ddl/` | DDL statements → the versions that they make |
| `from_table_map.py` | table maps and schemas, checked against each other |
| `view.py` | which schema a table had at a position of the log |
| `changes.py` | decoded changes of one table version |
| `schema_file.py` | the schema files that storage consumers read |
"""
