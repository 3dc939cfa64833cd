"""The contract of a file format: tasks encode batches into payloads, delivery assembles payloads into files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # what delivery imports stays light
    import pyarrow as pa

    from penstock.files import Buffer
    from penstock.schema.changes import ChangeBatch
    from penstock.schema.model import TableSchema


class Assembler(Protocol):
    """The half of a format that delivery needs. It imports no kernels: they take longer to load than all of delivery."""

    def join(self, payloads: Iterable[Buffer]) -> Iterator[Buffer]:
        """A file from one or more payloads of one table version, in the order given, piece by piece: what tasks encoded is
        final, so that one payload at a time is in memory. The same payloads give the same bytes."""
        ...


class FileFormat(Assembler, Protocol):
    """Stateless, so safe to share between threads."""

    @property
    def name(self) -> str: ...

    @property
    def extension(self) -> str:
        """With its dot: `.json`."""
        ...

    def row_bytes_min(self, table: TableSchema) -> int:
        """What a row takes in a payload however short its values are: so no payload grows far over its rows."""
        ...

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        """What `join` gives, whole."""
        ...

    def encode(self, batch: ChangeBatch) -> Buffer:
        """A payload from rows of one table version that go to one date directory."""
        ...

    def rows(self, file: Buffer) -> pa.Table:
        """A file read back, for verify and tests: `_seq` (24 bytes), `_op` (I, U, D), `_commit_ts`, then the columns.

        An update that changes the row's key is two rows of the same seq, D and I, also where the file has one line.
        Where a format has no place for seq or commit_ts, the column is missing.
        """
        ...

    def pieces(self, file: Buffer, *, before: bool = False) -> Iterator[pa.Table]:
        """What `rows` gives, in pieces of a size that memory has room for where the format has such. `before`: with a column
        more for each, of the values before the change, and with the names that each line gives its table, where the format has
        them."""
        ...

    def rows_of(self, batch: ChangeBatch) -> pa.Table:
        """What `rows` gives of a file that holds just this batch; a format may know it without writing one."""
        ...
