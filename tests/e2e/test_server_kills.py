"""MariaDB and MySQL into files and into S3: an initial load under writes and a stream of rows and statements over more than
fifty tables, in one order, while every process and the server are killed with -9."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.objects import open_objects
from tests.e2e.killed_flow import COMBINATIONS, EVERYTHING, PLACES, SERVERS, KilledFlow, new_place, victims
from tests.support.budget import FLOW_KILLS, SEED
from tests.support.components import missing
from tools.components import MissingComponent

pytestmark = [pytest.mark.spark, pytest.mark.mariadb, pytest.mark.mysql, pytest.mark.s3]
MOST = COMBINATIONS[0]  # where more is killed than everything once


@pytest.mark.parametrize(("kind", "place"), COMBINATIONS, ids=map("-".join, COMBINATIONS))
def test_everything_is_killed_and_every_row_arrives_once(
    kind: str, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    print(f"seed {SEED}")
    url = request.getfixturevalue("s3_url") if place == "s3" else None
    try:
        server = SERVERS[kind](tmp_path / "server").start()  # of its own: it is killed
    except MissingComponent as error:
        missing(str(error))
    try:
        world = KilledFlow(tmp_path / "flow", server, url, SEED)
        try:
            world.run(_chosen(kind, place))
            world.check()
        finally:
            world.flow.kill()
    finally:
        server.stop()


def _chosen(kind: str, place: str) -> list[str]:
    """Everything once, and on one combination more often; with the smallest budget all combinations share it."""
    if len(EVERYTHING) <= FLOW_KILLS:
        return victims(FLOW_KILLS if (kind, place) == MOST else len(EVERYTHING), random.Random(SEED))
    begin = COMBINATIONS.index((kind, place)) * FLOW_KILLS
    return [EVERYTHING[(begin + n) % len(EVERYTHING)] for n in range(FLOW_KILLS)]


def test_the_soaks_own_places_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The soak makes its places without pytest's fixtures, and is run too seldom to find out there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ALLOW_HTTP"):
        monkeypatch.setenv(name, "")  # whatever the place sets is taken back after the test
    for place in PLACES:
        with new_place(place, tmp_path) as url:
            store = open_objects(url or tmp_path.as_uri())
            store.put("a", b"b")
            assert bytes(store.get("a", 0, 1)) == b"b"
