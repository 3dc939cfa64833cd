"""The log that most tests of cursors begin with; a test file with a log of its own replaces the fixture."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import Closed, Fenced
from penstock.log import Log, wait_all
from tests.log.cursors.support import SETTINGS


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Ledgers 1 to 4 with three entries each, two in ledger 5, and a cursor `keep` that needs all of them."""
    log = Log.open(tmp_path / "log", SETTINGS)
    log.open_cursor("keep").close()
    wait_all([log.append(b"%d" % n) for n in range(14)])
    yield log
    with contextlib.suppress(Fenced, Closed):
        log.close()
