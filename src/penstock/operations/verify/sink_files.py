"""What lies at a storage sink: its data files that count, the schema files beside them, and its dead letters.

A file counts once its directory's index names it or a later one. Files beyond the index are left over from a write that
never finished; consumers do not read them, and neither does verify.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from penstock.delivery.storage.layout import DEAD_LETTERS
from penstock.objects import ObjectStore

_DATA_FILE = re.compile(r"^CDC(?:_[0-9a-f]{32}_)?(\d+)\.[a-z]+$")
_DIRECTORY = re.compile(r"[^/]+/[^/]+/(?:version=)?[0-9]+/[^/]+")  # anything else is not ours
_INDEX_DIRECTORIES = ("meta", "_meta")
_INDEX_NAME = "CDC.index"
_SCHEMA_FILE = re.compile(r"([^/]+/[^/]+)/_?meta/schema_(\d+)_\d+\.json")


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """One table version on one date: the names of all files that count, in order; `faults` says which are missing."""

    schema: str
    table: str
    version: int
    date: str
    path: str
    files: tuple[str, ...]
    faults: tuple[str, ...] = field(default=())


class SinkFiles(NamedTuple):
    """`directories` in commit order for each table. `schemas`: the schema files of a table's directory and a version.
    `dead_letters`: their names."""

    directories: list[DataDirectory]
    schemas: dict[tuple[str, int], list[str]]
    dead_letters: set[str]


def data_directories(objects: ObjectStore) -> list[DataDirectory]:
    """Every data directory of the sink, in commit order for each table."""
    return list_sink(objects).directories


def list_sink(objects: ObjectStore, *, moving: bool = False) -> SinkFiles:
    """`moving`: a flow writes there meanwhile. Then the names are listed twice: a directory may come into being behind the place
    that a listing has reached, and a later one of the same table before it."""
    names = _Names.listed(objects)
    if moving:
        names.complete(_Names.listed(objects))
    found = [_directory(objects, name, files, names.indexes.get(name)) for name, files in names.numbered.items()]
    found.sort(key=lambda d: (d.schema, d.table, d.version, d.date))
    return SinkFiles(found, names.schemas, names.dead_letters)


class _Names(NamedTuple):
    numbered: dict[str, dict[int, str]]  # by their directories
    indexes: dict[str, str]
    schemas: dict[tuple[str, int], list[str]]
    dead_letters: set[str]

    @classmethod
    def listed(cls, objects: ObjectStore) -> _Names:
        made = cls({}, {}, {}, set())
        for name in objects.walk():
            directory, _, file = name.rpartition("/")
            above, _, last = directory.rpartition("/")
            if file == _INDEX_NAME and last in _INDEX_DIRECTORIES and _DIRECTORY.fullmatch(above):
                made.indexes[above] = name
                made.numbered.setdefault(above, {})
            elif (match := _DATA_FILE.match(file)) and _DIRECTORY.fullmatch(directory):
                made.numbered.setdefault(directory, {})[int(match.group(1))] = name
            elif match := _SCHEMA_FILE.fullmatch(name):
                made.schemas.setdefault((match[1], int(match[2])), []).append(name)
            elif name.startswith(f"{DEAD_LETTERS}/"):
                made.dead_letters.add(name)
        return made

    def complete(self, later: _Names) -> None:
        """Adds what was there before something that is listed here, and is in the later listing only."""
        last: dict[str, tuple[int, str]] = {}
        for directory in self.indexes:
            table, place = _place(directory)
            last[table] = max(place, last.get(table, place))
        for directory, index in later.indexes.items():
            table, place = _place(directory)
            if directory not in self.indexes and table in last and place < last[table]:
                self.indexes[directory] = index
                self.numbered[directory] = later.numbered[directory]
        for key, names in later.schemas.items():
            self.schemas.setdefault(key, names)
        self.dead_letters.update(later.dead_letters)


def _place(directory: str) -> tuple[str, tuple[int, str]]:
    """The directory's table, and its place in the order of those of the table."""
    table, version, date = directory.rsplit("/", 2)
    return table, (int(version.removeprefix("version=")), date)


def _directory(objects: ObjectStore, directory: str, numbered: dict[int, str], index: str | None) -> DataDirectory:
    parts = directory.split("/")
    schema, table = unquote(parts[0]), unquote(parts[1])
    version = int(parts[2].removeprefix("version="))
    date = parts[3].removeprefix("date=")
    content = objects.read(index) if index is not None else None
    if content is None:
        return DataDirectory(schema, table, version, date, directory, ())
    name = content.data.decode(errors="replace").removesuffix("\n")
    match = _DATA_FILE.match(name)
    if match is None:
        fault = f"{index} holds {name!r}, which is no data file's name"
        return DataDirectory(schema, table, version, date, directory, (), (fault,))
    last = int(match.group(1))
    if any(number not in numbered for number in range(1, last + 1)):  # a flow that runs writes more after the listing
        numbered = {**numbered, **_numbered(directory, objects.list(directory))}
    faults = tuple(
        f"{directory}: file {number} of {last} is missing" for number in range(1, last + 1) if number not in numbered
    )
    files = tuple(numbered[number] for number in range(1, last + 1) if number in numbered)
    return DataDirectory(schema, table, version, date, directory, files, faults)


def _numbered(directory: str, names: Iterable[str]) -> dict[int, str]:
    files = {name.removeprefix(f"{directory}/"): name for name in names}
    return {int(match.group(1)): name for file, name in files.items() if (match := _DATA_FILE.match(file))}
