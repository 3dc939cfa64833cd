"""A log at its limit, or a disk that is nearly full: capture pauses, and goes on when there is room."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from penstock.capture.log_config import Keep, LimitsConfig, LogConfig
from penstock.capture.loop import Capture
from penstock.capture.room import Room, used_bytes
from penstock.log import Log
from penstock.sources.demo.source import DemoSource
from tests.capture.running import demo
from tests.support.waiting import LIMIT_SECONDS, wait_until

LIMIT = 1 << 20


class Watched:
    """Capture of the demo on a thread, into a log with a limit."""

    def __init__(self, log: Log, room: Room) -> None:
        self.said: list[dict[str, Any]] = []
        self.stop = threading.Event()
        self.reached: bool | None = None
        self._capture = Capture(
            log,
            DemoSource(demo(changes=80_000)),
            stop=self.stop,
            report=self.said.append,
            room=room,
            entry_bytes=8 << 10,
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.reached = self._capture.run(until_now=True)

    @property
    def paused(self) -> str:
        return str(self.said[-1].get("paused") or "") if self.said else ""

    def end(self) -> None:
        self._thread.join(LIMIT_SECONDS)
        assert self.reached is not None


def test_a_log_at_its_limit_pauses_until_the_slowest_sink_has_passed(tmp_path: Path) -> None:
    log = Log.open(tmp_path, LogConfig().settings(LIMIT))
    cursor = log.open_cursor("bus")
    watched = Watched(log, Room(log, tmp_path, log_bytes_max=LIMIT, free_bytes_min=0))
    try:
        wait_until(lambda: "limits.log_disk" in watched.paused, "pause", lambda: watched.said[-1:])
        end, used = log.end(), used_bytes(tmp_path)
        assert used < LIMIT + (16 << 20), "the chunk that was read already is appended, and no more"
        assert "capture" not in watched.paused
        assert log.end() == end
        for _ in range(1000):  # the sink goes on: each time something goes, and capture fills it again
            if watched.reached is not None:
                break
            cursor.mark_delete(log.end()).result(LIMIT_SECONDS)
            watched._thread.join(0.05)
        watched.end()
        assert watched.reached is True
        assert log.statistics().first > end, "what the sink had passed is gone"
    finally:
        watched.stop.set()
        watched.end()
        log.close()


def test_a_disk_that_is_nearly_full_pauses_until_there_is_room(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    left = [1 << 20]
    room = Room(log, tmp_path, log_bytes_max=None, free_bytes_min=2 << 20, free=lambda _: left[0])
    watched = Watched(log, room)
    try:
        wait_until(lambda: "limits.disk_free" in watched.paused, "pause", lambda: watched.said[-1:])
        assert "1.0 MiB left, less than 2.0 MiB" in watched.paused
        left[0] = 4 << 20
        wait_until(lambda: watched.reached, "end of the source")
    finally:
        watched.stop.set()
        watched.end()
        log.close()


def test_what_every_sink_has_goes_by_default_and_more_is_kept_on_demand() -> None:
    assert LogConfig().settings().retention_seconds == 0.0
    assert LogConfig().settings().retention_bytes is None
    by_size = LogConfig(keep=Keep.model_validate({"size": 1 << 40})).settings()
    assert (by_size.retention_seconds, by_size.retention_bytes) == (None, 1 << 40)
    for_ever = LogConfig(keep=Keep.model_validate({"for": None})).settings()
    assert (for_ever.retention_seconds, for_ever.retention_bytes) == (None, None)
    again = LogConfig.model_validate_json(
        LogConfig(keep=Keep.model_validate({"for": None})).model_dump_json(by_alias=True)
    )
    assert again.settings().retention_seconds is None, "as the capture process reads it"
    limited = LogConfig(keep=Keep.model_validate({"for": None})).settings(log_disk=1 << 30)
    assert (limited.ledger_bytes_max, limited.retention_bytes) == (1 << 27, (1 << 30) - (1 << 28)), (
        "kept entries give way"
    )
    assert LimitsConfig().log_disk is None


def test_a_stop_ends_the_pause(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    watched = Watched(log, Room(log, tmp_path, log_bytes_max=None, free_bytes_min=1, free=lambda _: 0))
    try:
        wait_until(lambda: watched.paused, "pause", lambda: watched.said[-1:])
    finally:
        watched.stop.set()
        watched.end()
        log.close()
    assert watched.reached is False
