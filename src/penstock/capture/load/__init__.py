"""The initial load: rows that the source held before the log began, through the log in chunks (decision 12).

| module | job |
|---|---|
| `tables.py` | the tables that are being read, and the threads that read them |
| `cleaning.py` | a chunk without the rows that the stream has changed meanwhile |
| `keeping.py` | what the log keeps for a chunk that takes long |
| `initial_load.py` | chunks into the log, at the right moment: the side of the log's writer |
| `request.py` | what `penstock backfill` asks for |
| `beginning.py` | loads that begin later: backfills, and tables that are chosen after the log's start |
"""
