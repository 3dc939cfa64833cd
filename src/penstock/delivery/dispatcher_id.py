"""The identity of a dispatcher: a function of names alone, so that every task computes it without asking anybody."""

from __future__ import annotations

import hashlib

DISPATCHER_ID_BYTES = 16
FIRST_EPOCH = 1  # of a dispatcher that the keeper does not know yet; the keeper creates it with the same epoch


def dispatcher_id(changefeed: str, schema: str, table: str, split: int = 0) -> str:
    """32 hex digits: the first 16 bytes of SHA-256 over the NUL-joined names. MySQL names never hold a NUL."""
    joined = "\0".join((changefeed, schema, table, str(split)))
    return hashlib.sha256(joined.encode()).digest()[:DISPATCHER_ID_BYTES].hex()
