"""Bucket state: typed key-value stores attached to a log, whose changes ride in the log's own frames.

state = BucketState.open(log)
orders = state.get_or_create_store(StateDescriptor("orders", "dedupe", codecs.u64, codecs.json))
change = state.begin()
orders.put(change, 17, {"seen": True})
state.commit(change, entry).result()        # entry and change are on the disk, or neither is
"""

from penstock.state.changes import Change
from penstock.state.checkpoints.recovery import RecoveryProgress, StateLost
from penstock.state.engines.engine import CheckpointInfo
from penstock.state.reader import OnFrame, StateReader
from penstock.state.settings import StateSettings
from penstock.state.state import BucketState
from penstock.state.store import RawStore, StateIterator, TypedStore
from penstock.state.types import codecs
from penstock.state.types.descriptor import Migration, Namespace, StateDescriptor
from penstock.state.types.evolution import Compatibility, Verdict
from penstock.state.types.model_codecs import model

__all__ = [
    "BucketState",
    "Change",
    "CheckpointInfo",
    "Compatibility",
    "Migration",
    "Namespace",
    "OnFrame",
    "RawStore",
    "RecoveryProgress",
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
