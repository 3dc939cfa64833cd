"""Looks at the files of a log without owning it, and says what is damaged and where.

Nothing here writes, takes a lock or waits for the owner, which may be at work meanwhile: what looks wrong while the owner
writes it is read again before it is called damaged.

| file | examines |
|---|---|
| `damage.py` | the answer: `Damage`, `Examined` |
| `frames.py` | the frames of a file that still grows |
| `ledgers.py` | a ledger: header, frames, footer |
| `end_file.py` | the `end` file: fence, slots, final end, hints |
| `records.py` | a record log |
| `offloaded.py` | the objects of an offloaded ledger |
"""
