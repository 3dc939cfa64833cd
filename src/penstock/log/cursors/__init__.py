"""Cursors: named readers of a log that remember durably which entries are done.

| file | job |
|---|---|
| `acked.py` | which entries are acked: the pure state, without I/O or threads |
| `records.py` | that state as records of the cursor's record log |
| `registry.py` | the cursor in the metadata store: where its record log is, what trim must keep for it |
| `pointer.py` | the owner's side of the registration: when the mark-delete is published there |
| `acks.py` | taking acks: changed in memory at once, durable in groups |
| `reading.py` | which entries a cursor reads next |
| `backlog.py` | how much it has still to do |
| `opening.py` | opening and deleting a durable cursor |
| `idle.py` | how long cursors were unused |
| `cursor.py` | the owner's handle |
| `table.py` | all cursors of a log in this process |
"""
