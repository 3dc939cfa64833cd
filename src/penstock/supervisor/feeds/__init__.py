"""The changefeeds of a run, which come and go while it goes on.

| file | what |
|---|---|
| `changefeeds.py` | settings and keepers, which of them failed, which child knows which of them |
| `reloading.py` | the configuration, read again: what is added and removed, and what waits for the next run |
"""
