"""Fixtures of the tests of offload."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.log.offload import format as offload_format
from tests.log.offload.world import OffloadWorld


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that even the ledgers of these tests have several parts of several blocks."""
    monkeypatch.setattr(offload_format, "BLOCK_BYTES", 256)


@pytest.fixture
def world(small_blocks: None) -> Iterator[OffloadWorld]:
    made = OffloadWorld()
    yield made
    with contextlib.suppress(PenstockError):
        made.log.close()


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a real object store: a directory, or a bucket of a real S3 server."""
    if request.param == "s3":
        return str(request.getfixturevalue("s3_url"))
    return (tmp_path / "objects").as_uri()
