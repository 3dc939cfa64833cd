"""Real servers of both families, for one test each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.components.database import DatabaseServer


@pytest.fixture
def own_server(server: DatabaseServer, tmp_path: Path) -> Iterator[DatabaseServer]:
    """One for a test that changes the server's binlogs."""
    with type(server)(tmp_path / "server") as own:
        yield own
