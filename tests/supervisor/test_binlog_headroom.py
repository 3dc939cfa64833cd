"""How long the server keeps what capture needs: never more than is true, and known while the server does not answer."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.errors import Unavailable
from penstock.sources.mysql.binlog_files import BinlogFiles, ask_binlog_files, expire_seconds, purges_by_size
from penstock.supervisor.health.binlog_headroom import BinlogHeadroom
from penstock.supervisor.health.rates import Rate
from tests.sources.mysql.streaming import session, settings
from tests.support.components import FAMILIES
from tools.components.database import DatabaseServer

DAY = 86_400.0


class Server:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.names: tuple[str, ...] = ("bin.1", "bin.2")
        self.expire: float | None = 10 * DAY
        self.down = False
        self.by_size = False
        self.offset_ms = 5000  # its clock is not ours

    def ask(self) -> BinlogFiles:
        if self.down:
            raise Unavailable("down")
        return BinlogFiles(
            self.names, self.expire, self.clock.wall_ms() + self.offset_ms, "MariaDB 10.11.6", self.by_size
        )


def at(file: str, begun_seconds: float = 0) -> dict[str, object]:
    return {"file": file, "pos": 4, "begun": int(begun_seconds)}


@pytest.fixture(params=FAMILIES)
def server_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server() -> Server:
    return Server(ManualClock())


def test_the_file_that_is_written_has_all_its_time(server: Server) -> None:
    headroom = BinlogHeadroom(server.ask, server.clock)
    assert headroom.of_position(at("bin.2")) is None, "nothing is known yet"
    headroom.look()
    found = headroom.of_position(at("bin.2"))
    assert found is not None and found.seconds == 10 * DAY and not found.low
    assert headroom.of_position(None) is None and headroom.of_position(at("")) is None
    assert headroom.server == "MariaDB 10.11.6"


def test_a_file_that_was_begun_since_the_server_was_asked_is_not_gone(server: Server) -> None:
    headroom = BinlogHeadroom(server.ask, server.clock)
    headroom.look()
    found = headroom.of_position(at("bin.3"))
    assert found is not None and found.seconds == 10 * DAY and not found.low
    server.expire = None
    headroom.look()
    kept = headroom.of_position(at("bin.10"))
    assert kept is not None and kept.seconds is None and not kept.low


def test_an_older_file_counts_from_when_it_was_last_written_for_certain(server: Server) -> None:
    headroom = BinlogHeadroom(server.ask, server.clock)
    headroom.look()
    begun = (server.clock.wall_ms() + server.offset_ms) / 1000 - 2 * DAY
    found = headroom.of_position(at("bin.1", begun))
    assert found is not None and found.seconds == pytest.approx(8 * DAY, abs=2)
    server.clock.advance(DAY)  # until here bin.2 was the newest, and then another one was begun
    headroom.look()
    server.names = ("bin.1", "bin.2", "bin.3")
    server.clock.advance(DAY)
    headroom.look()
    later = headroom.of_position(at("bin.2", begun))
    assert later is not None and later.seconds == pytest.approx(9 * DAY, abs=2), "not the six of its beginning"


def test_time_goes_on_while_the_server_is_down(server: Server) -> None:
    headroom = BinlogHeadroom(server.ask, server.clock)
    headroom.look()
    begun = (server.clock.wall_ms() + server.offset_ms) / 1000
    server.down = True
    server.clock.advance(10 * DAY - 1800)
    with contextlib.suppress(Unavailable):
        headroom.look()
    found = headroom.of_position(at("bin.1", begun))
    assert found is not None and found.seconds == pytest.approx(1800, abs=2) and found.low


def test_a_file_that_is_gone_and_a_server_that_purges_nothing(server: Server) -> None:
    headroom = BinlogHeadroom(server.ask, server.clock)
    headroom.look()
    gone = headroom.of_position(at("bin.0"))
    assert gone is not None and gone.seconds == 0 and gone.low and gone.oldest == "bin.1"
    server.expire = None
    headroom.look()
    kept = headroom.of_position(at("bin.1", 1))
    assert kept is not None and kept.seconds is None and not kept.low


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"binlog_expire_logs_seconds": "3600", "expire_logs_days": "0"}, 3600.0),
        ({"expire_logs_days": "0.5"}, 43_200.0),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0"}, None),
        ({"binlog_expire_logs_seconds": "3600", "binlog_expire_logs_auto_purge": "OFF"}, None),
        ({}, None),
    ],
)
def test_when_the_server_purges(variables: dict[str, str], seconds: float | None) -> None:
    assert expire_seconds(variables) == seconds


@pytest.mark.parametrize("expire", [None, 10 * DAY])
def test_nobody_knows_when_a_server_purges_by_size(server: Server, expire: float | None) -> None:
    server.by_size, server.expire = True, expire
    headroom = BinlogHeadroom(server.ask, server.clock)
    headroom.look()
    assert headroom.of_position(at("bin.1", 1)) is None and headroom.of_position(at("bin.2", 1)) is None
    gone = headroom.of_position(at("bin.0"))
    assert gone is not None and gone.low, "that is known all the same"
    assert purges_by_size({"max_binlog_total_size": "1073741824"}) and purges_by_size({"binlog_space_limit": "1"})
    assert not purges_by_size({"max_binlog_total_size": "0"}) and not purges_by_size({})


def test_a_source_that_nobody_purges() -> None:
    assert BinlogHeadroom.of({"type": "demo"}, ManualClock()) is None


def test_real_servers_say_it(request: pytest.FixtureRequest, tmp_path: Path, server_kind: str) -> None:
    shared: DatabaseServer = request.getfixturevalue(f"{server_kind}_server")
    with type(shared)(tmp_path / "server") as own_server:
        say_it(own_server)


def say_it(own_server: DatabaseServer) -> None:
    with session(own_server) as cursor:
        cursor.execute("SET GLOBAL binlog_expire_logs_seconds = 7200")
        cursor.execute("FLUSH BINARY LOGS")
    found = ask_binlog_files(settings(own_server))
    assert found.expire_seconds == 7200 and len(found.names) >= 2
    assert found.server.startswith(("MariaDB 1", "MySQL 8"))
    headroom = BinlogHeadroom.of(
        {
            "type": "mysql",
            "unix_socket": str(own_server.socket),
            "user": own_server.user,
            "password": own_server.password,
        },
        ManualClock(),
    )
    assert headroom is not None
    headroom.look()
    newest = headroom.of_position(at(found.names[-1]))
    assert newest is not None and newest.seconds == 7200


def test_a_rate_is_of_the_last_minutes() -> None:
    rate = Rate(window_seconds=60)
    rates = [rate.per_second]
    for second in range(0, 100):
        rate.note(second, 10 * second if second < 30 else 300)
    rates.append(rate.per_second)
    rate.note(100.1, 300 + 60)
    assert rates == [None, 0.0]
    assert rate.per_second == pytest.approx(1.0, rel=0.1)
