"""The tables of a server, read in chunks of their primary key, in columns and without Python per row.

| module | job |
|---|---|
| `plan.py` | what is loaded, and what is refused before anything begins |
| `readiness.py` | what a load needs of a server, for `penstock check` |
| `condition.py` | the conditions of `penstock backfill --where` |
| `reader.py` | one chunk: that it sees enough, its SELECT, and how much it may have seen |
| `keys.py` | the SQL that reads on after a key |
| `ranges.py` | a large table in ranges of its key |
| `result.py`, `packets.py` | a result set as the server sends it → where each value is |
| `columns.py`, `texts.py` | texts of values → the forms of schema/changes.py |
"""
