"""Rules: what a sink gets of a table's rows, between decoding and encoding (docs/rules.md).

Pure: changes in, changes out, in Arrow columns; no I/O, and no Python per row.

| file | what it does |
|---|---|
| `settings.py` | the rules as a user writes them; light, without Arrow |
| `versions.py` | the settings that shape rows, and their versions over the log; light too |
| `holds.py` | tables that stay back because of what a statement did to them; light too |
| `expressions/` | the language of filters and computed columns: text → syntax → vectorised evaluation |
| `routes.py` | under which name a table is at the sink |
| `sha256_kernels.py`, `masks.py` | values that nobody may read |
| `sql_text.py` | what can be said of a `sql:` without Spark; light |
| `sql.py` | a `sql:` on the way of the rows: what goes into Spark SQL, what becomes of what comes out |
| `images.py` | the rows of a batch while rules are applied to them |
| `table_rules.py` | the rules of one table, bound to one version of it |
| `rules.py` | all rules of a sink: each change as the sink sees it |
| `wholes.py`, `gathering.py` | several tables of the source that are one at the sink: its schema, and its rows in order |
| `passage.py` | what a range of the log passes through; tables that stop |
| `versioned.py` | the rules of a sink over the log, version by version |
"""
