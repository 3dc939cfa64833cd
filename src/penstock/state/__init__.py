"""Bucket state: typed key-value stores attached to a log, whose changes are written in the log's own frames.

    state = BucketState.open(log)
    orders = state.get_or_create_store(StateDescriptor("orders", "dedupe", codecs.u64, codecs.json))
    change = state.begin()
    orders.put(change, 17, {"seen": True})
    state.commit(change, entry).result()  # entry and change are on the disk, or neither is

| file | what it does |
|---|---|
| `types/` | codecs, descriptors, the registry of stores, and whether a program can read what another one wrote |
| `settings.py`, `metrics.py` | tuning; totals over all states of the process |
| `changes.py` | the change that a commit takes, and its encoding |
| `engines/` | bytes by namespace and key, in memory over checkpoints: `native` and `rocksdb` |
| `checkpoints/` | recovery from a checkpoint and the log; the thread that writes checkpoints |
| `store.py`, `view.py` | typed and raw stores; what an owner's state and a reader have in common |
| `reader.py` | the state as another process reads it |
| `state.py` | the owner's state: commits; `log_state.py` and `record_state.py`: over a log, and over a record log |
"""

from penstock.state.changes import DELETE, Change
from penstock.state.checkpoints.recovery import RecoveryProgress, StateLost
from penstock.state.engines.engine import CheckpointInfo
from penstock.state.log_state import LogState as _LogState  # noqa: F401 (`BucketState.open` finds it once imported)
from penstock.state.reader import OnFrame, StateReader
from penstock.state.record_state import RecordLogState as _RecordLogState  # noqa: F401 (the same)
from penstock.state.settings import StateSettings
from penstock.state.state import BucketState
from penstock.state.store import RawStore, StateIterator, TypedStore
from penstock.state.types import codecs
from penstock.state.types.descriptor import Migration, Namespace, StateDescriptor
from penstock.state.types.evolution import Compatibility, Verdict
from penstock.state.types.model_codecs import model
from penstock.state.view import SnapshotStores

__all__ = [
    "DELETE",
    "BucketState",
    "Change",
    "CheckpointInfo",
    "Compatibility",
    "Migration",
    "Namespace",
    "OnFrame",
    "RawStore",
    "RecoveryProgress",
    "SnapshotStores",
    "StateDescriptor",
    "StateIterator",
    "StateLost",
    "StateReader",
    "StateSettings",
    "TypedStore",
    "Verdict",
    "codecs",
    "model",
]
