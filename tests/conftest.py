"""Fixtures that every room's tests may ask for.

On a user's machine a test that needs a real component which is not there is skipped with a sentence that says why; in
strict mode (`CI=true` or `PENSTOCK_STRICT=1`) it fails, so that a green CI means that everything ran.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import settings

from tools.components import MissingComponent
from tools.components.mariadb import MariaDbServer
from tools.components.s3 import BUCKET, S3Server

# The machines are noisy: an example's time proves nothing. A failing example is printed with its seed.
settings.register_profile("penstock", deadline=None, print_blob=True)
settings.load_profile("penstock")

CORPUS = Path(__file__).resolve().parent.parent.parent / "shared" / "corpus"


def is_strict() -> bool:
    return os.environ.get("CI") == "true" or os.environ.get("PENSTOCK_STRICT") == "1"


def missing(reason: str) -> NoReturn:
    """Skips, or fails in strict mode."""
    if is_strict():
        pytest.fail(f"strict mode: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """A real MariaDB, shared by the whole session: use databases of your own, and leave its binlogs alone."""
    server = MariaDbServer(tmp_path_factory.mktemp("mariadb"))
    try:
        server.start()
    except MissingComponent as error:
        missing(str(error))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, shared by the whole session: use prefixes of your own."""
    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        server.start()
    except MissingComponent as error:
        missing(str(error))
    yield server
    server.stop()


@pytest.fixture
def s3_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A prefix of the real S3 server for this test alone, with what clients read of the environment set."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    # A client keeps the endpoint of the environment that it was made in: names never come twice.
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/{re.sub('[^a-z0-9]+', '-', request.node.name.lower())}"


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """Binlog files of real servers, beside the repository on the developers' machines and CI's."""
    if not CORPUS.is_dir():
        missing(f"the corpus of real binlogs is not at {CORPUS}")
    return CORPUS
