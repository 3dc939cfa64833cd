from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.capture.load.loading import World, loading
from tools.components.database import DatabaseServer


@pytest.fixture
def world(server: DatabaseServer, tmp_path: Path) -> Iterator[World]:
    with loading(server, tmp_path / "state") as found:
        yield found
