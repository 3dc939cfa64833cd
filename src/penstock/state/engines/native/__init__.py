"""The `native` engine: layers in memory over immutable, hash-indexed runs (docs/formats/checkpoint.md).

| file | what it does |
|---|---|
| `format.py` | the bytes of a run: header, footer, sections |
| `kernels.py` | compiled loops that write, merge, index and check runs |
| `pages.py` | the pages of a run: read and checked; a cache of them |
| `run.py`, `sources.py`, `writer.py` | reads one run; several of them for a merge; writes one |
| `manifest.py`, `checkpoints.py` | the file that names the runs of a checkpoint; all checkpoints of a directory |
| `lookup.py`, `base.py` | compiled lookups; the runs of a checkpoint, read together |
| `merging.py` | which runs to merge, and when |
| `engine.py` | the engine: writes checkpoints and merges them beside readers and writers |
"""
