"""Looks at the files of a log without owning it, and says what is damaged and where.

Nothing here writes, takes a lock or waits for the owner, which may be at work meanwhile: what looks wrong while the owner
writes it is read again before it is called damaged.

| file | examines |
|---|---|
| `damage.py` | the answer: `Damage`, `Examined` |
| `local.py` | local files: a ledger's header, frames and footer; a record log; the records of an `end` file |
| `offloaded.py` | the objects of an offloaded ledger |
"""
