"""Fixtures of the storage sink on a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.delivery.s3.nursery import Nursery, nursery
from tests.delivery.s3.world import S3World, s3_world
from tools.components.s3 import S3Server


@pytest.fixture(scope="session")
def delivery_nursery() -> Iterator[Nursery]:
    with nursery() as made:
        yield made


@pytest.fixture
def world(
    s3_url: str, s3_server: S3Server, delivery_nursery: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[S3World]:
    with s3_world(s3_url, s3_server, delivery_nursery, tmp_path, monkeypatch) as made:
        yield made
