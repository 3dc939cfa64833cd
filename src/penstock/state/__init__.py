"""Bucket state: typed key-value stores attached to a log, whose changes ride in the log's own frames."""

from penstock.state import codecs
from penstock.state.bucket import BucketState, OnFrame, StateReader
from penstock.state.store import Change, StateDescriptor, TypedStore

__all__ = ["BucketState", "Change", "OnFrame", "StateDescriptor", "StateReader", "TypedStore", "codecs"]
