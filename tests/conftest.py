"""Fixtures that every package's tests may ask for, and the hooks of the test run."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

from tests.support import budget, scheduling
from tests.support.components import CORPUS, CORPUS_MISSING, FAMILIES, missing, skipped_line
from tools.components import MissingComponent
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer
from tools.components.mysql import MySqlServer
from tools.components.s3 import BUCKET, S3Server

# An example's time says nothing on a busy machine. A failing example is printed with its seed.
settings.register_profile(
    "penstock",
    deadline=None,
    print_blob=True,
    max_examples=budget.EXAMPLES,
    derandomize=budget.NAME != "soak",
)
settings.load_profile("penstock")

os.environ.setdefault("PENSTOCK_CLASS_ARCHIVE", "off")  # no run of a test leaves a process behind that makes one

Server = TypeVar("Server", bound=DatabaseServer | S3Server)


@pytest.hookimpl(trylast=True)  # after pytest-xdist has decided whether it shares out tests
def pytest_configure(config: pytest.Config) -> None:
    scheduling.install(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    scheduling.arrange(config, items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if line := skipped_line(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def mariadb_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """A real MariaDB, shared by all tests of this process: use databases of your own, and leave its binlogs alone."""
    with _running(MariaDbServer(tmp_path_factory.mktemp("mariadb"))) as server:
        yield server


@pytest.fixture(params=FAMILIES)
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    """A real server of each family, shared as the two are."""
    found: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture(scope="session")
def mysql_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MySqlServer]:
    """A real MySQL 8.0, shared by all tests of this process: use databases of your own, and leave its binlogs alone."""
    with _running(MySqlServer(tmp_path_factory.mktemp("mysql"))) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server, shared by all tests of this process: use prefixes of your own."""
    with _running(S3Server(tmp_path_factory.mktemp("s3"))) as server:
        yield server


@contextlib.contextmanager
def _running(server: Server) -> Iterator[Server]:
    try:
        server.start()
    except MissingComponent as error:
        missing(str(error))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def s3_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A prefix of the real S3 server for this test alone, with the environment that clients read."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    # Clients are kept per URL with the endpoint of the environment that they were made in, so no URL may come twice.
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/{re.sub('[^a-z0-9]+', '-', request.node.name.lower())}"


@pytest.fixture(scope="session")
def corpus_dir() -> Path:
    """Binlog files of real servers, beside the repository on the developers' machines and CI's."""
    if not CORPUS.is_dir():
        missing(CORPUS_MISSING)
    return CORPUS
