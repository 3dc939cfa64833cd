"""The demo source: a small shop. Its binlog is a function of a seed and a size; its truth is computed apart.

| module | job |
|---|---|
| `byte_column.py` | columns of byte strings, and how they are joined row by row |
| `plan.py` | which row is written when: closed forms, no history to replay |
| `shop.py` | the tables, and the content of any row at any of its stages |
| `rows.py` | column values to row images of the binlog |
| `stream.py` | a chunk of the plan as one binlog file |
| `source.py` | the `Source` that capture reads |
| `truth.py` | the final tables and the number of changes, from the plan alone |
"""
