"""What a flow was last started with: docs/formats/settings-record.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.files import REAL_FILES, Files
from penstock.files.seam import read_file
from penstock.operations.config.model import Config
from penstock.secret import Secret, harmless
from penstock.supervisor.settings import SETTINGS_RECORD

VERSION = 1
_HIDDEN = "(hidden)"


def recorded_settings(config: Config) -> dict[str, Any]:
    """Every setting in force by its key, as plain JSON, without a secret."""
    found = dict(_walk(config.model_dump(by_alias=True), ""))
    found.pop("state_dir", None)  # it lies there, and may be moved
    return found


def read_record(state_dir: Path, files: Files = REAL_FILES) -> dict[str, Any] | None:
    """The settings of the last start; None where nobody knows them."""
    try:
        document = json.loads(read_file(files, state_dir / SETTINGS_RECORD))
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("version") != VERSION:
        return None
    settings = document.get("settings")
    return settings if isinstance(settings, dict) else None


def _walk(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _walk(child, f"{key}.{name}" if key else str(name))
    elif value not in (None, [], (), {}):
        yield key, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Secret):
        return _HIDDEN
    if isinstance(value, dict):
        return {str(name): _plain(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(child) for child in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str) and "://" in value:
        return harmless(value)
    return value
