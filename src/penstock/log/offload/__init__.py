"""Offload: copies of sealed ledgers in an object store (docs/formats/offload.md).

| file | |
|---|---|
| `format.py` | names of the objects, the index object |
| `ledger.py` | an offloaded ledger as a file to read |
| `store.py` | the ledger store that knows both kinds of copies |
| `steps.py` | the numbered steps for one ledger |
| `offloader.py` | when which ledger is copied, and by which thread |
"""
