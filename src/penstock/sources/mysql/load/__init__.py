"""The tables of a server, read in chunks of their primary key, in columns and without Python per row.

| module | job |
|---|---|
| `plan.py` | what is loaded, and what is refused before anything begins |
| `reader.py` | one chunk: that it sees enough, its SELECT, and how much it may have seen |
| `keys.py` | the SQL that reads on after a key |
| `result.py`, `packets.py` | a result set as the server sends it → where each value is |
| `columns.py`, `texts.py` | texts of values → the forms of schema/changes.py |
"""
