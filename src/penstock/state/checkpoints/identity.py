"""Which log a directory of checkpoints belongs to: a new log in the place of a deleted one must not get its state.

The file `log` says so. It is written before the first checkpoint: one line of JSON, then its CRC32C as 8 hex digits and
a newline. A file that is damaged counts as absent, and is written again with the next checkpoint.
"""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import google_crc32c

from penstock.errors import Corruption
from penstock.files import Files, read_file, replace_file
from penstock.state.engines.refusals import raise_refusal

NAME = "log"


def check(files: Files, directory: Path, log: UUID) -> None:
    """Raises `Corruption` where the checkpoints are those of another log."""
    found = _read(files, directory)
    if found is not None and found != log:
        raise Corruption(
            f"the checkpoints in {directory} belong to log {found}, not to {log}",
            hint="nothing was changed; restore the directory of this log, or move that one away",
        )


def ensure(files: Files, directory: Path, log: UUID) -> None:
    """Writes the file, unless it names this log already. Durable when this returns."""
    if _read(files, directory) == log:
        return
    files.make_directory(directory)
    text = json.dumps({"format": 1, "log": str(log)}).encode()
    replace_file(files, directory / NAME, [text, f"\n{google_crc32c.value(text):08x}\n".encode()])


def _read(files: Files, directory: Path) -> UUID | None:
    try:
        raw = read_file(files, directory / NAME)
    except OSError as error:
        raise_refusal(directory / NAME, error)
        return None
    text, _, crc = raw.rstrip(b"\n").rpartition(b"\n")
    if not text or f"{google_crc32c.value(text):08x}".encode() != crc:
        return None
    return UUID(json.loads(text)["log"])
