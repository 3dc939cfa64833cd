"""Engines of a state: bytes by namespace and key, in memory, over checkpoints on disk.

| file | what it does |
|---|---|
| `engine.py` | the contract |
| `overlay.py` | layers of changes in memory, and snapshots of them; long work in portions |
| `key_kernels.py` | keys compared and sorted by compiled code |
| `layered.py` | everything of an engine but its checkpoints; the engine that has none |
| `checkpointed.py` | what the engines with checkpoints share |
| `native/`, `rocksdb/` | the two engines with checkpoints |
| `opening.py` | opens an engine by its name |
"""
