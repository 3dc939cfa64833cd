"""Rules: what a sink gets of a table's rows, between decoding and encoding (docs/rules.md).

Pure: changes in, changes out, in Arrow columns; no I/O, and no Python per row.

| file | what it does |
|---|---|
| `settings.py` | the rules as a user writes them, and what identifies them; light, without Arrow |
| `expressions/` | the language of filters and computed columns: text → syntax → vectorised evaluation |
| `routes.py` | under which name a table is at the sink |
| `sha256_kernels.py`, `masks.py` | values that nobody may read |
| `images.py` | the rows of a batch while rules are applied to them |
| `table_rules.py` | the rules of one table, bound to one version of it |
| `rules.py` | all rules of a sink: each change as the sink sees it |
"""
