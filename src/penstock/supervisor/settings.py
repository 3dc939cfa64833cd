"""What one `penstock run` needs to know. Plain data, which `penstock.operations` builds from penstock.yaml."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """How a child is started. Only tests replace it, by small scripts of their own."""

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
    """Of one run. `source`, `log`, `state`, `limits`, `spark` and the dict of each changefeed are passed on to the children
    as they are."""

    state_dir: Path
    source: dict[str, Any]
    changefeeds: dict[str, dict[str, Any]]
    log: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    spark: dict[str, Any] = field(default_factory=dict)
    http_listen: str | None = None  # where /metrics, /healthz and /readyz are served; None: nowhere
    once: bool = False
    stop_seconds_max: float = 30.0  # how long a stop may drain before the children are killed
    progress_every_seconds: float = 1.0
    backoff_first_seconds: float = 0.2
    backoff_seconds_max: float = 10.0
    healthy_seconds: float = 60.0  # the death of a child that lived this long starts the backoff anew
    commands: Mapping[str, ChildCommand] = field(default_factory=lambda: dict(DEFAULT_COMMANDS))

    def __post_init__(self) -> None:
        if not self.changefeeds:
            raise BadInput("there is no sink to deliver to", hint="add one under `sinks:` in penstock.yaml")
        for name in self.changefeeds:
            if not name or "/" in name or "\x00" in name or name.startswith("."):
                raise BadInput(f"{name!r} cannot name a sink", hint="use letters, digits, - and _")
