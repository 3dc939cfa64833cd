"""The directories of one `penstock run`: the state directory, for its user alone, and `run/` in it.

`run/` holds what lives as long as the run: sockets, process ids, all of Spark's and Java's temporary files. It is cleared
at the end, and again at the next start, because a killed run cannot. The logs of the processes stay.
"""

from __future__ import annotations

from pathlib import Path

from penstock.files.private import clear_private, make_private_directory, tighten
from penstock.files.socket_address import remove_short_directory


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


def prepare_run_directory(state_dir: Path) -> None:
    """Makes `run/` and removes what a killed run left there. Only for the holder of the state directory's lock."""
    make_private_directory(state_dir / "run")
    clear_run_directory(state_dir)


def clear_run_directory(state_dir: Path) -> None:
    """Removes everything from `run/` but the logs."""
    remove_short_directory(state_dir / "run")
    clear_private(state_dir / "run", keep=_is_log)


def _is_log(path: Path) -> bool:
    return ".log" in path.suffixes
