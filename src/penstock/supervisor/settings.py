"""What one `penstock run` is told, and what it says at its end. Plain data; `control/` builds it from penstock.yaml."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """How a child is started; replaced only by tests, which run small scripts of their own."""

    argv: tuple[str, ...]


def module_command(module: str) -> ChildCommand:
    return ChildCommand((sys.executable, "-m", module))


DEFAULT_COMMANDS: Mapping[str, ChildCommand] = {
    "capture": module_command("penstock.capture"),
    "delivery": module_command("penstock.delivery"),
    "driver": module_command("penstock.spark"),
}


@dataclass(frozen=True, slots=True)
class RunSettings:
    """`source`, `log`, each changefeed's dict and `spark` are passed on to the children as they are."""

    state_dir: Path
    source: dict[str, Any]
    changefeeds: dict[str, dict[str, Any]]
    log: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)
    once: bool = False
    stop_seconds_max: float = 30.0  # how long a stop may drain before the children are killed
    progress_every_seconds: float = 1.0
    backoff_first_seconds: float = 0.2
    backoff_seconds_max: float = 10.0
    healthy_seconds: float = 60.0  # a child that lived this long starts again without a penalty
    commands: Mapping[str, ChildCommand] = field(default_factory=lambda: dict(DEFAULT_COMMANDS))

    def __post_init__(self) -> None:
        if not self.changefeeds:
            raise BadInput("there is no sink to deliver to", hint="add one under `sinks:` in penstock.yaml")
        for name in self.changefeeds:
            if not name or "/" in name or "\x00" in name or name.startswith("."):
                raise BadInput(f"{name!r} cannot name a sink", hint="use letters, digits, - and _")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run ended. `rows`, `files` and `bytes` count what this run brought to the sinks."""

    exit_code: int  # 0 ok, 2 configuration, 3 source, 4 sink, 75 try again later, 1 anything else
    rows: int
    files: int
    bytes: int
    seconds: float
    drained: bool  # everything that was published is at the sinks
    message: str = ""
    hint: str = ""
    restarts: dict[str, int] = field(default_factory=dict)
    log_end: str | None = None
    mark_delete: dict[str, str] = field(default_factory=dict)
    driver_ready_seconds: float | None = None  # from the start of the run to the first driver that could work
    stage_seconds: dict[str, float] = field(default_factory=dict)  # the tasks' time by stage, all changefeeds together


class Stop:
    """A wish to stop: the first drains, the second ends at once. Safe to use in a signal handler (it takes no lock)."""

    def __init__(self) -> None:
        self._requests = 0

    def request(self) -> None:
        self._requests += 1

    def is_set(self) -> bool:
        return self._requests > 0

    @property
    def at_once(self) -> bool:
        return self._requests > 1


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask `stop` for the length of the block; outside the main thread this does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.request()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
