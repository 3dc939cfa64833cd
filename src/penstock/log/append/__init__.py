"""The owner's appends: from the caller's thread into the open ledger.

| file | job |
|---|---|
| `request.py` | one append: what is to be written, and the future that answers it, in one object |
| `queue.py` | the appends that wait, and how the writer thread takes them: a group at a time |
| `groups.py` | what fits into the open ledger, and the answers to a group |
| `appender.py` | the writer thread: writes and syncs a group, answers it, replaces a ledger that fails |
| `ledger_sequence.py` | which ledger is open, and when the next one takes its place |
"""
