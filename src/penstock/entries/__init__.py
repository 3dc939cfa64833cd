"""The entry: what capture appends to the log and every reader decodes.

| module | job |
|---|---|
| `format.py` | the bytes of an entry (docs/formats/entry.md) |
| `chunk.py` | rows of an initial load as an entry |
| `stores.py` | the state that rides in the frames of entries |
| `decode.py` | entries → changes of tables, in columns |
"""
