"""A program in a Python process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.waiting import LIMIT_SECONDS
from tools.components import REPOSITORY


def run_fresh(program: str, *, cwd: Path = REPOSITORY, **environment: str) -> str:
    """What it prints. It has the environment of the tests and this in addition; a program that fails fails the test."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-1000:]
    return done.stdout
