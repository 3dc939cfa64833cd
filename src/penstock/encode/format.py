"""The contract of a file format: tasks encode batches into payloads, delivery assembles payloads into files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from penstock.files import Buffer
from penstock.schema.changes import ChangeBatch


class FileFormat(Protocol):
    """Stateless, so safe to share between threads. The same rows give the same file, whatever payloads they came in."""

    @property
    def name(self) -> str: ...

    @property
    def extension(self) -> str:
        """With its dot: `.json`."""
        ...

    def encode(self, batch: ChangeBatch) -> Buffer:
        """A payload from rows of one table version that go to one date directory."""
        ...

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        """A file from one or more payloads of one table version, in the order given."""
        ...

    def rows(self, file: Buffer) -> pa.Table:
        """A file read back, for verify and tests: `_seq` (24 bytes), `_op` (I, U, D), `_commit_ts`, then the columns."""
        ...
