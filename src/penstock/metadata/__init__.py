"""A versioned compare-and-set store for small values: which process owns a log or cursor, and which files belong to it.

`store.py` has the protocol, `sqlite.py` the store that Penstock uses, `memory.py` the one for crash tests.
"""

from penstock.metadata.memory import MemoryMetadata
from penstock.metadata.sqlite import SqliteMetadata
from penstock.metadata.store import (
    Check,
    Create,
    Delete,
    MetadataStore,
    Operation,
    Put,
    VersionConflict,
    Versioned,
)

__all__ = [
    "Check",
    "Create",
    "Delete",
    "MemoryMetadata",
    "MetadataStore",
    "Operation",
    "Put",
    "SqliteMetadata",
    "VersionConflict",
    "Versioned",
]
