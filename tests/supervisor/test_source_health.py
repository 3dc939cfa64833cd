"""A source that is down, stalled or out of reach is degraded in `status` within seconds; a failed first start heals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.operations.config.model import Places
from penstock.operations.status import read_status
from penstock.process import Event
from penstock.supervisor.health.source_health import COMPILING_SECONDS_MAX, SILENT_SECONDS_MAX, SourceHealth
from penstock.supervisor.settings import DEFAULT_COMMANDS, RunSettings
from tests.e2e.load import source_of
from tests.e2e.servers.proxy import Fault, Proxy
from tests.supervisor.test_supervisor import Running, importable, running, settings_of
from tools.components.mariadb import MariaDbServer

__all__ = ["importable"]


class Slot:
    """What the health asks of capture's slot."""

    def __init__(self) -> None:
        self.state = "running"
        self.note = ""
        self.started_at = 0.0
        self.ready_at: float | None = None


def health_of(source: str = "mariadb", *, compiled: bool = True) -> tuple[SourceHealth, Slot, ManualClock]:
    slot, clock = Slot(), ManualClock()
    clock.advance(1000)
    slot.started_at = clock.monotonic()
    return SourceHealth(source, slot, clock, lambda: compiled), slot, clock  # type: ignore[arg-type]


def heard(clock: ManualClock, **more: Any) -> dict[str, Any]:
    return {"event": Event.PROGRESS, "heard_ms": clock.wall_ms(), **more}


def test_a_server_that_sends_not_even_heartbeats_is_degraded_within_ten_seconds() -> None:
    health, _, clock = health_of()
    health.on_event(heard(clock))
    last = health.heard_ms
    for _ in range(9):
        clock.advance(1)
        health.on_event({"event": Event.PROGRESS, "heard_ms": last})
    assert "nothing came from it for 9 s" in health.problem()
    health.on_event(heard(clock))
    assert health.problem() == ""


def test_a_capture_process_that_took_long_to_start_is_no_fault_of_the_source() -> None:
    health, slot, clock = health_of()
    slot.state = "starting"
    clock.advance(SILENT_SECONDS_MAX + 2)
    assert health.problem() == ""
    slot.state, slot.ready_at = "running", clock.monotonic()
    health.on_event({"event": Event.READY})
    assert health.problem() == ""
    clock.advance(SILENT_SECONDS_MAX + 1)
    assert health.problem() == "capture has said nothing for 7 s"


def test_a_new_installation_compiles_and_says_nothing_meanwhile() -> None:
    for compiled, told in ((False, ""), (True, "capture has said nothing for 20 s")):
        health, slot, clock = health_of(compiled=compiled)
        slot.ready_at = clock.monotonic()
        health.on_event(heard(clock))
        clock.advance(20)
        assert health.problem() == told
    clock.advance(COMPILING_SECONDS_MAX)
    assert "capture has said nothing" in health.problem(), "also where compiled code cannot be kept"


def test_a_source_without_heartbeats_may_have_nothing_to_say() -> None:
    health, _, clock = health_of("binlog-files")
    health.on_event(heard(clock))
    last = health.heard_ms
    for _ in range(60):
        clock.advance(1)
        health.on_event({"event": Event.PROGRESS, "heard_ms": last})
    assert health.problem() == ""
    clock.advance(SILENT_SECONDS_MAX + 1)
    assert "capture has said nothing" in health.problem()


def test_a_source_that_has_ended_needs_to_say_nothing_more() -> None:
    health, _, clock = health_of("demo")
    health.on_event(heard(clock))
    health.on_event({"event": Event.CAUGHT_UP, "heard_ms": clock.wall_ms()})
    clock.advance(3600)
    assert health.problem() == ""


def test_retries_are_a_problem_until_something_is_heard_again() -> None:
    health, slot, clock = health_of()
    health.on_event(heard(clock))
    health.on_event({"event": Event.RETRYING, "message": "the host is down", "attempt": 3})
    assert health.problem() == "the host is down (attempt 3)"
    health.on_event({"event": Event.PROGRESS, "heard_ms": health.heard_ms})  # an answer to a request, say
    assert health.problem() == "the host is down (attempt 3)"
    clock.advance(1)
    health.on_event(heard(clock))
    assert health.problem() == ""
    slot.state, slot.note = "waiting", "ended: no route"
    assert health.problem() == "capture ended: no route"


def test_a_pause_is_a_problem_too() -> None:
    health, _, clock = health_of()
    health.on_event(heard(clock, paused="the disk is full"))
    assert health.paused == "the disk is full"
    assert health.problem() == "capture is paused: the disk is full"
    clock.advance(1)
    health.on_event(heard(clock))
    assert health.problem() == health.paused == ""


def with_real_capture(state_dir: Path, source: dict[str, Any]) -> RunSettings:
    settings = settings_of(state_dir)
    commands = {**settings.commands, "capture": DEFAULT_COMMANDS["capture"]}
    return replace(settings, source=source, commands=commands)


@contextlib.contextmanager
def through_proxy(server: MariaDbServer) -> Iterator[tuple[Proxy, dict[str, Any]]]:
    with Proxy((server.host, server.port)).running() as proxy:
        yield proxy, {**source_of(server, "health"), "host": "127.0.0.1", "port": proxy.port}


def exit_code(one: Running) -> int:
    return read_status(Places(state_dir=one.settings.state_dir, sinks=("lake",))).exit_code


@pytest.mark.mariadb
def test_a_stalled_server_is_degraded_with_the_age_of_its_last_word(
    mariadb_server: MariaDbServer, tmp_path: Path
) -> None:
    with through_proxy(mariadb_server) as (proxy, source), running(with_real_capture(tmp_path, source)) as one:
        one.until(lambda s: s.source.heard_ms is not None and not s.source.problem and s.phase == "running")
        one.until(lambda s: all(child.state == "running" for child in s.children))
        assert exit_code(one) == 0
        proxy.fail_after(Fault.STALL, 0)
        told = one.until(lambda s: bool(s.source.problem))
        assert "not even a heartbeat" in told.source.problem
        assert told.source.heard_ms is not None
        assert (told.now_ms - told.source.heard_ms) / 1000 + 1 >= SILENT_SECONDS_MAX  # a heartbeat comes every second
        assert exit_code(one) == 1
        proxy.be_kind()
        proxy.hang_up()
        one.until(lambda s: not s.source.problem)


@pytest.mark.mariadb
@pytest.mark.parametrize("why", ["host down", "wrong password"])
def test_a_failed_first_start_leaves_a_state_that_starts(
    why: str, mariadb_server: MariaDbServer, tmp_path: Path
) -> None:
    right = source_of(mariadb_server, "health")
    wrong = {**right, "host": "127.0.0.1", "port": 1} if why == "host down" else {**right, "password": "wrong"}
    with running(with_real_capture(tmp_path, wrong)) as one:
        if why == "host down":
            one.until(lambda s: "cannot connect" in s.source.problem)
            assert exit_code(one) == 1
            one.stop.request()
        summary = one.end()
    assert summary.exit_code == (0 if why == "host down" else 3)
    with running(with_real_capture(tmp_path, right)) as one:
        one.until(lambda s: s.source.heard_ms is not None and s.log.end is not None and not s.source.problem)
        one.stop.request()
        assert one.end().exit_code == 0
