"""Versioned compare-and-set store: who owns what, and which files count."""

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
