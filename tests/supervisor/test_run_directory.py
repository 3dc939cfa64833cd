"""The directories of a run: for its user alone, and empty but for the logs once it is over."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.supervisor.run_directory import prepare_run_directory, secure_state_directory
from penstock.supervisor.supervisor import run
from tests.supervisor.test_supervisor import importable, running, settings_of
from tests.support.second_user import SECOND_USER, needs_second_user

__all__ = ["importable"]


def others(directory: Path) -> list[str]:
    """What others have any right to, below a directory."""
    return [
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def test_everything_of_a_run_is_private_and_the_sockets_are_gone_after_it(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    umask = os.umask(0)
    try:
        with running(settings_of(state_dir)) as one:
            one.until(lambda status: status.rows > 0)
            notes_of_tiny_children = {path.name for path in state_dir.iterdir() if path.is_file()} - {"lock"}
            assert set(others(state_dir)) <= notes_of_tiny_children
            assert (state_dir / "run" / "control.sock").is_socket()
    finally:
        os.umask(umask)
    assert sorted(path.name for path in (state_dir / "run").iterdir()) == ["capture.log", "delivery.log", "driver.log"]


def test_an_open_state_directory_is_closed_and_the_run_says_so(tmp_path: Path) -> None:
    state_dir = tmp_path / "state"
    run(settings_of(state_dir, once=True))
    for path in (state_dir, state_dir / "log", state_dir / "metadata.sqlite"):
        if path.exists():
            path.chmod(0o755)
    with running(settings_of(state_dir)) as one:
        status = one.until(lambda status: status.phase == "running")
    assert f"other users could look into {state_dir}; it is private now" in status.note
    assert not others(tmp_path)
    with running(settings_of(state_dir)) as one:
        assert one.until(lambda status: status.phase == "running").note == ""


def test_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path) -> None:
    prepare_run_directory(tmp_path)
    (tmp_path / "run" / "spark" / "tmp").mkdir(parents=True)
    for name in ("control.sock", "capture.pid", "capture.log", "capture.log.1", "spark/spark.log", "spark/tmp/lib.so"):
        (tmp_path / "run" / name).touch()
    prepare_run_directory(tmp_path)
    left = sorted(path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*"))
    assert left == ["capture.log", "capture.log.1", "spark", "spark/spark.log"]


@needs_second_user
def test_a_state_directory_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    os.chown(tmp_path / "state", SECOND_USER, SECOND_USER)
    with pytest.raises(BadInput, match="belongs to"):
        run(settings_of(tmp_path / "state", once=True))
    assert not list((tmp_path / "state").iterdir())
    with pytest.raises(BadInput, match="can be replaced"):
        secure_state_directory(tmp_path / "state" / "below")
