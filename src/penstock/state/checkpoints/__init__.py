"""Checkpoints of the state of a log: how they are written beside its writers, and how a state comes back from them.

| file | what it does |
|---|---|
| `identity.py` | which log a directory of checkpoints belongs to |
| `recovery.py` | the newest good checkpoint, then the frames after it |
| `checkpointer.py` | writes checkpoints on a thread of its own, and pins the log |
| `scrubber.py` | reads them again and again, and mends what the disk has damaged |
"""
