"""The identity of a dispatcher: a function of names alone, so that no task has to ask for it."""

from __future__ import annotations

import hashlib

DISPATCHER_ID_BYTES = 16
FIRST_EPOCH = 1  # of a dispatcher that no one has recorded yet; the keeper gives the same


def dispatcher_id(changefeed: str, schema: str, table: str, split: int = 0) -> str:
    """32 hex digits: the first 16 bytes of SHA-256 over the NUL-joined names. MySQL names never hold a NUL."""
    joined = "\0".join((changefeed, schema, table, str(split)))
    return hashlib.sha256(joined.encode()).digest()[:DISPATCHER_ID_BYTES].hex()
