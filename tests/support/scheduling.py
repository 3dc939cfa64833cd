"""How tests are shared out to the processes of pytest-xdist (`make test`).

Tests that need the same heavy component form a group, and a group runs in one process, one test after another: so each
component starts once. Tests of whole flows start processes of their own and share no more than their file's fixtures:
there each file is a group. Every other test is a unit of its own, given to whichever process is free. What takes longest
in one piece begins first.

xdist's own `--dist loadgroup` would do, but it has no effect with pytest 9.2 (pytest-xdist issue 1386).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.compiling import compile_once

# Marks, in the order in which their tests begin. A test belongs to the first of these groups whose mark it has.
_GROUPS = ("spark", "mariadb", "s3")
_LONG = "slow"
_FLOWS = ("e2e", "docs")  # directories whose tests run whole flows
_FILE = "penstock_groups"


class GroupScheduling(LoadScopeScheduling):
    """Runs units in the order of collection. `groups`: a file that every worker writes once it has collected."""

    def __init__(self, config: pytest.Config, log: Any, groups: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._file = groups
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        """The name of the unit that this test belongs to."""
        if self._groups is None:
            self._groups = json.loads(self._file.read_text())
        return self._groups.get(nodeid, nodeid)


class Grouping:
    """The plugin. The controller only schedules; each worker collects, sorts, and tells the controller the groups."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-tests-")

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_FILE] = str(self._path)

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> GroupScheduling:
        return GroupScheduling(config, log, self._path)

    def pytest_unconfigure(self) -> None:
        self._directory.cleanup()

    @property
    def _path(self) -> Path:
        return Path(self._directory.name) / "groups.json"


def install(config: pytest.Config) -> None:
    """Called in every process; does nothing in a plain `pytest`, which runs tests in the order of the files."""
    if config.pluginmanager.hasplugin("dsession"):
        config.pluginmanager.register(Grouping())
    elif hasattr(config, "workerinput"):
        compile_once(Path(config.workerinput[_FILE]).with_name("compiling.lock"))


def _runs_flows(item: pytest.Item, config: pytest.Config) -> bool:
    return not {*_FLOWS}.isdisjoint(item.path.relative_to(config.rootpath).parts)


def arrange(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In a worker: puts the tests into the order in which they are to begin."""
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        return
    marks = (*_GROUPS, _LONG)

    def rank(item: pytest.Item) -> int:
        return next((place for place, mark in enumerate(marks) if item.get_closest_marker(mark)), len(marks))

    items.sort(key=rank)
    groups = {
        item.nodeid: str(item.path) if _runs_flows(item, config) else _GROUPS[rank(item)]
        for item in items
        if rank(item) < len(_GROUPS)
    }
    path = Path(workerinput[_FILE])
    written = path.with_name(f"{workerinput['workerid']}.json")
    written.write_text(json.dumps(groups))
    written.replace(path)  # all workers write the same
