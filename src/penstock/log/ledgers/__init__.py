"""Ledgers: the files that a log is made of (docs/formats/ledger.md), and what the metadata store knows of them.

| file | |
|---|---|
| `info.py` | the list of a log's ledgers, one document in the metadata store |
| `footer.py` | the index at the end of a sealed ledger |
| `store.py` | the interface to the place where ledgers are |
| `local.py` | ledgers as local files |
| `catalog.py` | the owner's changes of the list |
| `holds.py` | cursors and pins, which keep entries from being trimmed |
"""
