"""Manifests (docs/formats/checkpoint.md): one small file for each checkpoint, written once and never changed.

The last checkpoint of a trimmed log is all there is of the state, so no single bad page may cost it: a manifest holds
its content twice, on different pages, and is good while one of the copies is.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c

from penstock.errors import NotSupported, StorageFailed
from penstock.files import Files, replace_file
from penstock.files.seam import REPAIR_HINT
from penstock.log.position import Position
from penstock.state.engines.native.format import PAGE_BYTES, BadRun
from penstock.state.engines.native.run import RunName

_FORMAT = "penstock state checkpoint"
_VERSION = 1
_NAME = re.compile(r"checkpoint-([0-9a-f]{16})\.json")
_RUN_NAME = re.compile(r"\.?run-([0-9a-f]{16})\.run(\.tmp)?")


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """A checkpoint as its file has it. Of two manifests with one position the higher generation counts."""

    generation: int
    position: Position
    wall_ms: int
    bytes_written: int
    seconds: float
    runs: tuple[RunName, ...]  # oldest first

    @property
    def file(self) -> str:
        return f"checkpoint-{self.generation:016x}.json"

    def with_runs(self, generation: int, runs: tuple[RunName, ...]) -> CheckpointManifest:
        """The same checkpoint made of other runs."""
        return replace(self, generation=generation, runs=runs)


def generation_of(name: str) -> int | None:
    """The generation in the name of a manifest; None: the name is not that of a manifest."""
    found = _NAME.fullmatch(name)
    return int(found[1], 16) if found else None


def run_id_of(name: str) -> int | None:
    """The id in the name of a run, or of a run that is being written; None: the name is not that of a run."""
    found = _RUN_NAME.fullmatch(name)
    return int(found[1], 16) if found else None


def encode(manifest: CheckpointManifest) -> bytes:
    record = {
        "format": _FORMAT,
        "version": _VERSION,
        "generation": manifest.generation,
        "position": str(manifest.position),
        "wall_ms": manifest.wall_ms,
        "bytes_written": manifest.bytes_written,
        "seconds": manifest.seconds,
        "runs": [run._asdict() for run in manifest.runs],
    }
    line = json.dumps(record, sort_keys=True).encode()
    copy = b"%s\n%08x\n" % (line, google_crc32c.value(line))
    pages = len(copy) // PAGE_BYTES + 1
    return 2 * (copy.ljust(pages * PAGE_BYTES - 1) + b"\n")


def decode(copy: bytes) -> CheckpointManifest:
    """Raises `BadRun` where the copy is damaged, `NotSupported` where its version is not known."""
    line, _, rest = copy.partition(b"\n")
    if rest[:9] != b"%08x\n" % google_crc32c.value(line):
        raise BadRun(0, "the checksum of the manifest does not match")
    try:
        record = json.loads(line)
        known = (record["format"], record["version"]) == (_FORMAT, _VERSION)
    except (ValueError, TypeError, KeyError) as error:
        raise BadRun(0, "this is no manifest") from error
    if not known:
        raise NotSupported(
            f"version {record['version']} of a {record['format']} is not known",
            hint="a newer Penstock wrote it: upgrade",
        )
    return CheckpointManifest(
        record["generation"],
        Position.parse(record["position"]),
        record["wall_ms"],
        record["bytes_written"],
        record["seconds"],
        tuple(RunName(**run) for run in record["runs"]),
    )


def write(files: Files, directory: Path, manifest: CheckpointManifest) -> None:
    """Durable when this returns. Raises `StorageFailed` where the disk does not hold what was written."""
    path = directory / manifest.file
    replace_file(files, path, [encode(manifest)])
    try:
        damage = find_damage(files, path, manifest)
    except FileNotFoundError as error:
        damage = BadRun(0, str(error))
    if damage is not None:
        raise StorageFailed(f"{path}: {damage.problem} at {damage.offset}, just after it was written", hint=REPAIR_HINT)


def read(files: Files, path: Path) -> CheckpointManifest:
    """The manifest, as the first sound copy has it. Raises `BadRun`, `NotSupported` or `FileNotFoundError`."""
    with closing(files.open(path)) as file:
        size = file.size()
        half = size // 2 if size % (2 * PAGE_BYTES) == 0 else size  # else the file was cut, or grew
        problems: list[BadRun] = []
        for start in range(0, max(size, 1), max(half, 1)):
            try:
                manifest = decode(file.read_at(start, half))
            except BadRun as error:
                problems.append(BadRun(start, error.problem))
            except OSError as error:  # a bad sector
                problems.append(BadRun(start, f"the manifest cannot be read: {error}"))
            else:
                if manifest.file != path.name:
                    raise BadRun(0, f"the manifest calls itself {manifest.file}")
                return manifest
    raise problems[0]


def find_damage(files: Files, path: Path, manifest: CheckpointManifest) -> BadRun | None:
    """What is wrong with the file of this manifest, in either copy. None: nothing. Raises `FileNotFoundError`."""
    wanted = encode(manifest)
    with closing(files.open(path)) as file:
        file.forget_cached()
        try:
            found = file.read_at(0, max(file.size(), len(wanted)))
        except OSError as error:
            return BadRun(0, f"the manifest cannot be read: {error}")
    if found == wanted:
        return None
    shorter = min(len(found), len(wanted))
    at = next((at for at in range(shorter) if found[at] != wanted[at]), shorter)
    return BadRun(at, "the manifest is not what was written")
