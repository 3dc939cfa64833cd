"""Manifests (docs/formats/checkpoint.md): one small file for each checkpoint, written once and never changed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c

from penstock.errors import NotSupported
from penstock.files import Files, read_file, replace_file
from penstock.log.position import Position
from penstock.state.engines.native.format import BadRun
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
    return b"%s\n%08x\n" % (line, google_crc32c.value(line))


def decode(raw: bytes) -> CheckpointManifest:
    """Raises `BadRun` where the manifest is damaged, `NotSupported` where its version is not known."""
    line, _, _ = raw.partition(b"\n")
    if raw != b"%s\n%08x\n" % (line, google_crc32c.value(line)):
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
    replace_file(files, directory / manifest.file, [encode(manifest)])


def read(files: Files, path: Path) -> CheckpointManifest:
    """Raises `BadRun`, `NotSupported` or `FileNotFoundError`."""
    try:
        raw = read_file(files, path)
    except FileNotFoundError:
        raise
    except OSError as error:  # a bad sector
        raise BadRun(0, f"the manifest cannot be read: {error}") from error
    manifest = decode(raw)
    if manifest.file != path.name:
        raise BadRun(0, f"the manifest calls itself {manifest.file}")
    return manifest
