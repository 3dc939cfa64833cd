"""Which file of a sink is what. Two layouts: TiCDC's, and that of Parquet (docs/formats/manifest.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from tests.consumer.violation import require, violated

_SCHEMA_FILE = re.compile(r"schema_(\d+)_(\d{10})\.json")
_DATES = {"day": r"\d{4}-\d{2}-\d{2}", "month": r"\d{4}-\d{2}", "year": r"\d{4}", "none": ""}


@dataclass(frozen=True)
class LayoutSettings:
    """As the consumer is started. `settled`: the sink was drained, so that nothing may be half done."""

    extension: str = ".json"
    digits: int = 20
    date_separator: str = "day"
    meta: str = "meta"
    version_prefix: str = ""
    date_prefix: str = ""
    settled: bool = True


LAKE: dict[str, Any] = {
    "extension": ".parquet",
    "digits": 6,
    "meta": "_meta",
    "version_prefix": "version=",
    "date_prefix": "date=",
}


@dataclass
class DataDirectory:
    path: Path
    schema: str
    table: str
    version: int
    partition: str
    date: str
    files: list[Path] = field(default_factory=list)  # those that count, in order


@dataclass
class Layout:
    schema_files: list[tuple[Path, str, str, int, int]]  # path, schema, table (empty: a database), version, checksum
    directories: list[DataDirectory]


def read_layout(root: Path, settings: LayoutSettings) -> Layout:
    """Classifies every file below `root`, and finds the files that count."""
    schema_files: list[tuple[Path, str, str, int, int]] = []
    indexes: dict[PurePosixPath, Path] = {}
    found: dict[PurePosixPath, list[Path]] = {}
    for path in sorted(root.rglob("*")):
        relative = PurePosixPath(path.relative_to(root).as_posix())
        if not path.is_file() or relative.parts[0] == "_penstock" or any(p.startswith(".") for p in relative.parts):
            continue
        if relative.name.startswith("schema_") and relative.suffix == ".json":
            schema_files.append(_schema_file(path, relative, settings))
        elif re.fullmatch(r"CDC.*\.index", relative.name):
            place = relative.parent
            require(place.name == settings.meta, "index-place", path, "an index outside of a data directory's meta")
            indexes[place.parent] = path
        elif relative.name.startswith("CDC"):
            found.setdefault(relative.parent, []).append(path)
    for place, index in indexes.items():
        require(place in found, "index-ahead", index, "there is no data file beside it")
    directories = [_directory(root, place, files, indexes.get(place), settings) for place, files in found.items()]
    return Layout(schema_files, directories)


def _schema_file(path: Path, relative: PurePosixPath, settings: LayoutSettings) -> tuple[Path, str, str, int, int]:
    match = _SCHEMA_FILE.fullmatch(relative.name)
    if match is None:
        violated("schema-name", path, "the consumer does not see it")
    parts = relative.parts
    require(len(parts) in (3, 4) and parts[-2] == settings.meta, "schema-depth", path, "at another depth")
    table = unquote(parts[1]) if len(parts) == 4 else ""
    return path, unquote(parts[0]), table, int(match[1]), int(match[2])


def _directory(
    root: Path, place: PurePosixPath, files: list[Path], index: Path | None, settings: LayoutSettings
) -> DataDirectory:
    path = root / place
    parts = list(place.parts)
    date = ""
    if settings.date_separator != "none":
        date = parts.pop().removeprefix(settings.date_prefix) if len(parts) > 3 else ""
    pattern = _DATES[settings.date_separator]
    require(re.fullmatch(pattern, date), "date", path, f"{date!r} is no {settings.date_separator}")
    require(len(parts) in (3, 4), "date", path, "not schema, table, version and partition")
    version = parts[2].removeprefix(settings.version_prefix)
    require(
        version.isdecimal() and parts[2].startswith(settings.version_prefix),
        "date",
        path,
        f"{parts[2]!r} is no version",
    )
    made = DataDirectory(path, unquote(parts[0]), unquote(parts[1]), int(version), "".join(parts[3:]), date)
    numbers = {_number(file, settings): file for file in files}
    last = _indexed(index, made, settings)
    for number in range(1, last + 1):
        require(number in numbers, "index-ahead", path, f"file {number} of {last} is missing")
    beyond = [number for number in numbers if number > last]
    if index is None:
        require(not settings.settled and beyond == [1], "index-missing", path, f"{len(files)} files that nobody reads")
    require(
        beyond in ([], [] if settings.settled else [last + 1]), "index-behind", path, f"files {beyond} after {last}"
    )
    made.files = [numbers[number] for number in range(1, last + 1)]
    return made


def _number(path: Path, settings: LayoutSettings) -> int:
    pattern = rf"CDC(?:_[0-9a-f]{{32}}_)?(\d{{{settings.digits}}}){re.escape(settings.extension)}"
    match = re.fullmatch(pattern, path.name)
    if match is None:
        violated("file-name", path, f"not CDC, {settings.digits} digits, {settings.extension}")
    return int(match[1])


def _indexed(index: Path | None, directory: DataDirectory, settings: LayoutSettings) -> int:
    if index is None:
        return 0
    content = index.read_bytes()
    name = content.removesuffix(b"\n").decode("utf-8", "replace")
    require(name and re.fullmatch(r"[A-Za-z0-9_.]+", name), "index-content", index, repr(content))
    number = _number(directory.path / name, settings)
    require((directory.path / name).exists(), "index-ahead", index, f"{name} is not there")
    return number
