"""Where the demonstration puts its files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.operations.demo import Demo
from tests.support.second_user import SECOND_USER, needs_second_user


def prepare(directory: Path) -> Demo:
    return Demo.prepare(directory, seconds=1, rate=100, say=lambda *_: None)


def test_its_directory_is_for_this_user_alone_and_may_be_used_again(tmp_path: Path) -> None:
    for _ in range(2):
        prepare(tmp_path / "demo")
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "demo").iterdir()} == {0o600}
    assert stat.S_IMODE((tmp_path / "demo").stat().st_mode) == 0o700


@needs_second_user
def test_a_directory_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    """In /tmp anybody can make `penstock-demo`, and put a link there that leads to a file of ours."""
    tmp_path.chmod(0o1777)
    planted = tmp_path / "penstock-demo"
    planted.mkdir(mode=0o777)
    os.chown(planted, SECOND_USER, SECOND_USER)
    with pytest.raises(BadInput, match="belongs to the user"):
        prepare(planted)
    assert not list(planted.iterdir())
