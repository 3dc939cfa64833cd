"""A sink's prefix as a reader sees it: what its format is, up to where it is complete, its tables' versions and files.

Nothing counts that the sink's own documents do not vouch for (docs/formats/manifest.md): files after the one that an index
names, versions and rows above the checkpoint, and days that have expired are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

from penstock.delivery.storage.checkpoint import checkpoint_of
from penstock.delivery.storage.expiry import expired_before
from penstock.delivery.storage.layout import METADATA_PATH, OWNER_PATH, Layout, file_number, layout_of
from penstock.delivery.storage.owner import Owner
from penstock.delivery.storage.place import open_place
from penstock.encode.settings import FormatOptions
from penstock.errors import BadInput, Corruption, Unavailable
from penstock.files import REAL_FILES
from penstock.objects import ObjectStore
from penstock.schema.model import TableSchema
from penstock.schema.schema_file import table_of_schema_file
from penstock.spark.tables.history import History, sink_origins

_SCHEMA_FILE = re.compile(r"schema_(\d+)_\d+\.json")
_READS_AT_ONCE = 16
_DATA_DIRECTORY_PARTS = 4  # schema, table, version, date
_K = TypeVar("_K")


class DataFile(NamedTuple):
    """One file of rows of one table version."""

    schema: str
    table: str
    version: int
    path: str


class Directory(NamedTuple):
    """The files of one table version and day: numbers 1 to `last`, which its index names."""

    schema: str
    table: str
    version: int
    date: str
    path: str
    last: int

    @property
    def place(self) -> tuple[int, str]:
        """Of one table, directories come one after another in this order: once one has a file, those before get no more."""
        return self.version, self.date


@dataclass(frozen=True, slots=True)
class Sink:
    """`checkpoint_ts`: everything up to it is here, for all tables. `owner`: who writes here."""

    url: str
    objects: ObjectStore
    owner: Owner
    layout: Layout
    format: str
    options: FormatOptions
    checkpoint_ts: int
    expired_before: str

    @classmethod
    def open(cls, url: str) -> Sink:
        """Raises `BadInput` where no sink has written yet."""
        from penstock.encode.joining import options_of

        objects = open_place(url, REAL_FILES).objects
        found = objects.read(OWNER_PATH)
        if found is None:
            raise BadInput(
                f"{objects.url} is neither a sink's prefix ({OWNER_PATH} is not there) nor a state directory",
                hint="name the url of a sink, or the state_dir of a configuration",
            )
        owner = Owner.from_bytes(found.data, objects.url)
        name, _, text = owner.format.partition(" ")
        options = options_of(name, json.loads(text) if text else None)
        checkpoint_ts = checkpoint_of(objects.read(METADATA_PATH))
        return cls(url, objects, owner, layout_of(name), name, options, checkpoint_ts, expired_before(objects))

    def history(self, only: str | None = None) -> History:
        """The versions up to the checkpoint: of all tables, or with `only` of this one alone, without what renames tell."""
        tables = self._tables(self._names(only))
        if only is not None:
            return History.of(tables, {})
        origins, left = sink_origins(tables)
        return History.of([*tables, *left], origins)

    def files(self, only: str | None = None, wanted: Callable[[Directory], bool] = lambda _: True) -> list[DataFile]:
        """Every file that counts, of the directories that are `wanted`: by table and then in the order of the changes. Raises
        `Corruption` where one is missing, `Unavailable` where files expired meanwhile."""
        there: set[str] = set()
        found = self.directories(only, wanted, there)
        if self.has_expired_more():
            raise Unavailable(f"{self.url}: files have expired while they were listed", hint="read again")
        for directory in found:
            for path in self._paths(directory):
                # A running flow may have added it since the names were listed.
                if path not in there and self.objects.size(path) is None:
                    raise Corruption(f"{self.url}: {path} is missing, and the index of its directory counts it")
        return [file for directory in found for file in self.files_of(directory)]

    def has_expired_more(self) -> bool:
        """Whether files have expired since this was opened: what was listed since then may lack some of them."""
        return expired_before(self.objects) != self.expired_before

    def files_of(self, directory: Directory, first: int = 1) -> list[DataFile]:
        """The files of a directory from number `first` on, in the order of the changes."""
        return [DataFile(*directory[:3], path) for path in self._paths(directory, first)]

    def directories(
        self,
        only: str | None = None,
        wanted: Callable[[Directory], bool] = lambda _: True,
        there: set[str] | None = None,
    ) -> list[Directory]:
        """Those with files that count, by table and then in the order of the changes; only of those that are `wanted` (which
        are asked for with 0 as the last number) the index is read. `there` takes the names of all other objects."""
        indexes: list[tuple[Directory, str]] = []
        for name in self._names(only):
            directory = self._directory_of_index(name)
            if directory is None:
                if there is not None:
                    there.add(name)
            elif (
                directory.version <= self.checkpoint_ts and directory.date >= self.expired_before and wanted(directory)
            ):
                indexes.append((directory, name))
        found = []
        for directory, content in self._contents(indexes):
            if content is not None:  # else it expired meanwhile
                found.append(directory._replace(last=file_number(content.decode(errors="replace"))))
        return sorted(found)

    def _paths(self, directory: Directory, first: int = 1) -> Iterator[str]:
        return (self.layout.data_path(directory.path, number) for number in range(first, directory.last + 1))

    def _directory_of_index(self, name: str) -> Directory | None:
        path, _, rest = name.rpartition(f"/{self.layout.meta}/")
        parts = path.split("/")
        if rest != "CDC.index" or len(parts) != _DATA_DIRECTORY_PARTS:
            return None
        version, date = (
            parts[2].removeprefix(self.layout.version_prefix),
            parts[3].removeprefix(self.layout.date_prefix),
        )
        return (
            Directory(unquote(parts[0]), unquote(parts[1]), int(version), date, path, 0)
            if version.isdecimal()
            else None
        )

    def read(self, path: str) -> bytes:
        found = self.objects.read(path)
        if found is None:
            raise self.gone(path)
        return found.data

    def gone(self, path: str) -> Unavailable:
        """A file that was listed is not there."""
        return Unavailable(f"{self.url}: {path} went away while it was to be read", hint="it has expired: read again")

    def _names(self, only: str | None) -> Iterator[str]:
        """All names below the prefix; of one table: those below the directories that it may have."""
        if only is None:
            return self.objects.walk()
        return (name for directory in self._directories(only) for name in self.objects.walk(directory))

    def _directories(self, written: str) -> list[str]:
        """A table's name may hold points, so that `a.b.c` may mean two tables."""
        parts = written.split(".")
        pairs = ((".".join(parts[:at]), ".".join(parts[at:])) for at in range(1, len(parts)))
        return [self.layout.table_directory(*pair) for pair in pairs if all(pair)]

    def _tables(self, names: Iterable[str]) -> list[TableSchema]:
        chosen = []
        for name in names:
            directory, _, file = name.rpartition("/")
            match = _SCHEMA_FILE.fullmatch(file)
            if match and directory.endswith(f"/{self.layout.meta}") and int(match[1]) <= self.checkpoint_ts:
                chosen.append((name, name))
        tables = []
        for name, content in self._contents(chosen):
            if content is not None:
                tables.append(table_of_schema_file(content, f"{self.url}: {name}"))
        return tables

    def _contents(self, named: Iterable[tuple[_K, str]]) -> Iterator[tuple[_K, bytes | None]]:
        """(key, content) for each (key, name): several at a time, because each read of a remote store takes long."""

        def content(item: tuple[_K, str]) -> tuple[_K, bytes | None]:
            found = self.objects.read(item[1])
            return item[0], None if found is None else found.data

        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            return iter(list(pool.map(content, list(named))))
