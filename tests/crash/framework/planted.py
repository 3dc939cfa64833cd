"""A test of the test: known mistakes, planted one at a time into the code. The explorer must catch each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.files import Buffer, Files
from tests.crash.framework.explorer import Explorer
from tests.crash.framework.program import DEFAULT_FAULTS
from tests.crash.framework.promises import Violation

SECONDS_MAX = 100.0  # of CPU; most are caught within one, the rarest within 13 on average: no seed may decide

Patch = Callable[[Any, str, Any], None]  # (owner, name, replacement), as monkeypatch.setattr
Bug = Callable[[Patch], None]


class PlantedBugs(list[Bug]):
    """The bugs of one test module. An instance decorates the functions that plant them."""

    def __call__(self, function: Bug) -> Bug:
        self.append(function)
        return function


def must_be_caught(
    explorer: Explorer[Any], planted: Bug, monkeypatch: pytest.MonkeyPatch, *, faults: float = DEFAULT_FAULTS
) -> None:
    planted(monkeypatch.setattr)
    with pytest.raises(Violation) as seen:
        explorer.explore(1, seconds=SECONDS_MAX, faults=faults)
    print(f"{planted.__name__}: {seen.value}")


def replace_without_sync(files: Files, path: Path, buffers: Sequence[Buffer], *, sync_directory: bool = True) -> None:
    """`penstock.files.replace_file` with the mistake that the new content is renamed before it is synced."""
    temporary = path.with_name(f".{path.name}.tmp")
    files.remove(temporary)
    file = files.create(temporary)
    file.append(list(buffers))
    file.close()
    files.rename(temporary, path)
    if sync_directory:
        files.sync_directory(path.parent)
