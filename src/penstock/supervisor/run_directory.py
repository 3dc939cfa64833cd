"""The directories of one `penstock run`: the state directory, for its user alone, and `run/` in it.

`run/` holds what lives as long as the run: sockets, process ids, all of Spark's and Java's temporary files. It is cleared
at the end, and again at the next start, because a killed run cannot. The logs of the processes stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.errors import BadInput
from penstock.files import Files
from penstock.files.private import clear_private, make_private_directory, tighten
from penstock.files.seam import replace_file
from penstock.files.socket_address import remove_short_directory
from penstock.supervisor.settings import SETTINGS_RECORD

_RECORD_VERSION = 1
RECOVERY_MARK = "recovery.json"  # while it is there, a recovery from the sinks has begun and is not done


def secure_state_directory(state_dir: Path) -> str:
    """Makes the state directory, or takes the rights of others from it and from everything in it; says so if it did.

    Raises `BadInput` where the directory is somebody else's, or where others could put another one in its place.
    """
    if not make_private_directory(state_dir):
        return ""
    changed = tighten(state_dir)
    return (
        f"other users could look into {state_dir}; it is private now, and so are {changed} files and directories in it"
    )


def refuse_unfinished_recovery(state_dir: Path, files: Files) -> None:
    """Raises `BadInput` where the state directory is half made."""
    if files.exists(state_dir / RECOVERY_MARK):
        raise BadInput(
            f"{state_dir} is being recovered from the sinks, and that was interrupted",
            hint="penstock run --recover-from-sink begins it again",
        )


def prepare_run_directory(state_dir: Path) -> None:
    """Makes `run/` and removes what a killed run left there. Only for the holder of the state directory's lock."""
    make_private_directory(state_dir / "run")
    clear_run_directory(state_dir)


def clear_run_directory(state_dir: Path) -> None:
    """Removes everything from `run/` but the logs."""
    remove_short_directory(state_dir / "run")
    clear_private(state_dir / "run", keep=_is_log)


def write_settings_record(state_dir: Path, settings: dict[str, Any], wall_ms: int, files: Files) -> None:
    """Notes what this run is started with, for `penstock plan` (docs/formats/settings-record.md)."""
    document = {"version": _RECORD_VERSION, "written_ms": wall_ms, "settings": settings}
    replace_file(files, state_dir / SETTINGS_RECORD, [json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"])


def _is_log(path: Path) -> bool:
    return ".log" in path.suffixes
