"""`/metrics`, `/healthz`, `/readyz` of a real run over a real socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.errors import BadInput, Unavailable
from penstock.operations.config.loading import BadConfig, load
from penstock.operations.config.model import run_settings
from penstock.supervisor.http import server as http_server
from penstock.supervisor.http.server import THREADS, HttpServer, is_loopback, parse_listen
from penstock.supervisor.status import ChangefeedStatus, ChildStatus, LogStatus, RunStatus, SourceStatus
from tests.supervisor.test_supervisor import importable, running, settings_of

__all__ = ["importable"]

WELL = RunStatus(
    pid=1,
    started_ms=1000,
    now_ms=61_000,
    phase="running",
    source=SourceStatus(type="mariadb", state="running", heard_ms=60_000),
    log=LogStatus(bytes=5),
    changefeeds=(ChangefeedStatus(name="lake", state="running", rows=123_456_789, lag_seconds=1.5),),
    children=(ChildStatus(name="capture", state="running", restarts=2),),
)


class Told:
    """What the run would say now."""

    def __init__(self) -> None:
        self.status = WELL


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def server(told: Told) -> Iterator[HttpServer]:
    one = HttpServer(
        "127.0.0.1:0", lambda: told.status, lambda: "# TYPE penstock_flush_total counter\npenstock_flush_total 3\n"
    )
    yield one
    one.close()


def get(server: HttpServer, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_metrics_of_the_run_and_of_delivery_are_served_together(server: HttpServer) -> None:
    code, text = get(server, "/metrics")
    assert code == 200
    found = {
        (sample.name, sample.labels.get("changefeed") or sample.labels.get("process") or ""): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["penstock_run_rows_total", "lake"] == 123_456_789
    assert found["penstock_run_lag_seconds", "lake"] == 1.5
    assert found["penstock_run_child_restarts_total", "capture"] == 2
    assert found["penstock_run_source_last_event_age_seconds", ""] == 1
    assert found["penstock_flush_total", ""] == 3, "of the delivery process"


def test_metrics_without_delivery_are_those_of_the_run(told: Told) -> None:
    def gone() -> str:
        raise Unavailable("delivery is gone")

    server = HttpServer("[::1]:0" if socket.has_ipv6 else "127.0.0.1:0", lambda: told.status, gone)
    try:
        code, text = get(server, "/metrics")
    finally:
        server.close()
    assert (code, "penstock_run_well 1.0" in text) == (200, True)


def test_ready_is_what_status_calls_healthy(server: HttpServer, told: Told) -> None:
    assert get(server, "/readyz")[0] == get(server, "/healthz")[0] == 200
    told.status = WELL.model_copy(
        update={"source": WELL.source.model_copy(update={"problem": "it is down: secret-host"})}
    )
    code, text = get(server, "/readyz")
    assert (code, json.loads(text)["ok"]) == (503, False)
    assert "secret-host" not in text + get(server, "/metrics")[1], "messages are for the run's own user"
    assert get(server, "/healthz")[0] == 200, "a restart would not help"
    told.status = WELL.model_copy(update={"phase": "starting"})
    assert (get(server, "/readyz")[0], get(server, "/healthz")[0]) == (503, 200)
    told.status = WELL.model_copy(update={"phase": "draining"})
    assert (get(server, "/readyz")[0], get(server, "/healthz")[0]) == (503, 503)


def test_other_paths_and_methods_are_refused(server: HttpServer) -> None:
    assert get(server, "/")[0] == 404
    assert get(server, "/metrics/../../etc/passwd")[0] == 404
    assert get(server, "/healthz?verbose=1")[0] == 200
    assert get(server, "/healthz", "HEAD") == (200, "")
    assert get(server, "/healthz", "POST")[0] == 501


def test_whoever_holds_connections_open_does_not_hold_up_the_end(server: HttpServer) -> None:
    silent = [socket.create_connection(server.address) for _ in range(THREADS - 1)]
    assert get(server, "/healthz")[0] == 200, "one thread is left"
    for one in silent:
        one.close()


def test_nobody_is_asked_for_our_name(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(socket, "getfqdn", lambda name="": asked.append(name) or "host")
    HttpServer("127.0.0.1:0", lambda: told.status, str).close()
    assert asked == []


def test_whoever_sends_a_byte_now_and_then_does_not_keep_a_thread(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS_MAX", 0.5)
    server = HttpServer("127.0.0.1:0", lambda: told.status, str)
    slow = [socket.create_connection(server.address) for _ in range(THREADS)]
    stop = threading.Event()

    def trickle() -> None:
        while not stop.wait(0.1):
            for one in slow:
                with contextlib.suppress(OSError):
                    one.send(b"x")

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        connection = http.client.HTTPConnection(*server.address, timeout=10)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        stop.set()
        sender.join()
        for one in slow:
            one.close()
        server.close()


@pytest.mark.parametrize("listen", ["localhost:8400", "127.0.0.1", ":8400", "127.0.0.1:http", "127.0.0.1:70000", ""])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(BadInput, match="no address to listen on"):
        parse_listen(listen)


def test_an_address_in_use_is_refused_by_its_key(server: HttpServer, told: Told) -> None:
    with pytest.raises(BadInput, match=r"http\.listen: 127\.0\.0\.1:\d+ cannot be listened on"):
        HttpServer("{}:{}".format(*server.address), lambda: told.status, str)


def test_the_configuration_serves_nothing_unless_told_and_nobody_else_unless_meant(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    base = "source: {type: demo}\nsinks: {lake: {url: ./lake, format: parquet}}\n"
    path.write_text(base)
    assert run_settings(load(path), once=False).http_listen is None
    path.write_text(base + "http: {listen: 127.0.0.1:8400}\n")
    assert run_settings(load(path), once=False).http_listen == "127.0.0.1:8400"
    path.write_text(base + "http: {listen: 0.0.0.0:8400}\n")
    with pytest.raises(BadConfig, match="can be reached from other machines"):
        load(path)
    path.write_text(base + "http: {listen: 0.0.0.0:8400, allow_remote: true}\n")
    assert run_settings(load(path), once=False).http_listen == "0.0.0.0:8400"
    assert is_loopback("::1") and not is_loopback("10.0.0.1")


def test_a_run_serves_its_own_status(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with running(replace(settings_of(tmp_path), http_listen=f"127.0.0.1:{port}")) as one:
        one.until(lambda s: all(child.state == "running" for child in s.children) and s.phase == "running")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    assert 'penstock_run_child_up{process="driver"} 1.0' in text
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))
