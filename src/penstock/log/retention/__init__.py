"""What an owner's log keeps, and how entries go.

| file | job |
|---|---|
| `trim.py` | old ledgers go, once every cursor and pin has passed them and the retention settings do not keep them |
| `truncate.py` | every entry after a position goes |
| `skip.py` | entries that cannot be read any more are given up, on demand |
| `retention.py` | the owner's calls for both, for offload and pins; what the maintenance does |
| `maintenance.py` | the thread that does it at intervals |
"""
