"""Engines of a state: bytes by namespace and key, in memory, over checkpoints on disk.

| file | what it does |
|---|---|
| `engine.py` | the contract |
| `portions.py`, `key_kernels.py`, `sorting.py` | long work in portions; keys compared and sorted by compiled code |
| `overlay.py` | layers of changes in memory, and snapshots of them |
| `layered.py` | everything of an engine but its checkpoints; the engine that has none |
| `checkpointed.py` | what the engines with checkpoints share |
| `native/`, `rocksdb/` | the two engines with checkpoints |
| `opening.py` | opens an engine by its name |
"""
