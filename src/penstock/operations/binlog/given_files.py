"""The binlog files that a user names, in the order given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from penstock.binlog.types import MAGIC, MAGIC_ENCRYPTED
from penstock.errors import BadInput, NotSupported
from penstock.sources.binlog_files import READ_BYTES, BinlogFilesSource
from penstock.sources.position import SourcePosition
from penstock.sources.settings import BinlogFilesSettings


class GivenFiles(BinlogFilesSource):
    """A source over these files, whatever their numbers say."""

    def __init__(self, paths: Sequence[Path], read_bytes: int = READ_BYTES) -> None:
        super().__init__(BinlogFilesSettings(type="binlog-files", path=paths[0]), read_bytes=read_bytes)
        self._paths = list(paths)
        self.name = "binlog-files"
        twice = [name for name, count in Counter(path.name for path in paths).items() if count > 1]
        if twice:
            raise BadInput(
                f"two of the files are called {twice[0]}: their positions could not be told apart",
                hint="decode them one after the other",
            )
        for path in paths:
            _check_magic(path)
        self.bytes_total = sum(path.stat().st_size for path in paths)

    @property
    def start(self) -> SourcePosition:
        return SourcePosition(self._paths[0].name, 4, source=self.name)

    def bytes_before(self, name: str) -> int:
        """Of the files before the one with this name; 0 for a name that is not among them."""
        total = 0
        for path in self._paths:
            if path.name == name:
                return total
            total += path.stat().st_size
        return 0

    def _files(self) -> list[Path]:
        return self._paths


def _check_magic(path: Path) -> None:
    """Before anything is written: a wrong name among many is found at once."""
    if not path.is_file():
        raise BadInput(
            f"{path} is not a regular file: a pipe cannot be read from more than one place",
            hint="write the binlog to a file first",
        )
    with path.open("rb") as file:
        head = file.read(4)
    if head == MAGIC_ENCRYPTED:
        raise NotSupported(
            f"{path} is an encrypted binlog",
            hint="only its server can read it: follow that server, or fetch the events from it with mariadb-binlog",
        )
    if head != MAGIC:
        compressed = head[:2] == b"\x1f\x8b" or head == b"\x28\xb5\x2f\xfd"
        hint = "it is compressed: unpack it first" if compressed else ""
        raise BadInput(f"{path} is not a binlog file: it does not start with its magic number", hint=hint)
