"""What one `penstock run` needs to know. Plain data, which `penstock.operations` builds from penstock.yaml."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.delivery.settings import spool_settings
from penstock.errors import BadInput

Settings = dict[str, Any]
SETTINGS_RECORD = "settings.json"  # in the state directory: docs/formats/settings-record.md


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
    record: dict[str, Any] | None = None  # the settings as `penstock plan` compares them, without secrets
    once: bool = False
    stop_seconds_max: float = 30.0  # how long a stop may drain before the children are killed
    progress_every_seconds: float = 1.0
    backoff_first_seconds: float = 0.2
    backoff_seconds_max: float = 10.0
    healthy_seconds: float = 60.0  # the death of a child that lived this long starts the backoff anew
    commands: Mapping[str, ChildCommand] = field(default_factory=lambda: dict(DEFAULT_COMMANDS))

    def differences(self, other: RunSettings) -> list[str]:
        """The sections of the configuration, but for the sinks, that are not the same."""
        sections = {"state_dir": "state_dir", "source": "source", "log": "log", "state": "state", "limits": "limits",
                    "spark": "spark", "http_listen": "http"}  # fmt: skip
        return [name for key, name in sections.items() if getattr(self, key) != getattr(other, key)]

    def __post_init__(self) -> None:
        if not self.changefeeds:
            raise BadInput("there is no sink to deliver to", hint="add one under `sinks:` in penstock.yaml")
        for name in self.changefeeds:
            if not name or "/" in name or "\x00" in name or name.startswith("."):
                raise BadInput(f"{name!r} cannot name a sink", hint="use letters, digits, - and _")


def reloaded_record(before: Settings, after: Settings, added: Iterable[str], removed: Iterable[str]) -> Settings:
    """The record of the settings in force, once sinks were added and removed: all else is as it was."""

    def of(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"sinks.{name}." for name in names)

    kept = {key: value for key, value in before.items() if not key.startswith(of(removed))}
    return kept | {key: value for key, value in after.items() if key.startswith(of(added))}


def child_documents(settings: RunSettings, changefeeds: Mapping[str, Settings]) -> dict[str, Settings]:
    """The settings of each child that is started now, with the changefeeds that the run has now."""
    state_dir = str(settings.state_dir)
    return {
        "capture": {
            "state_dir": state_dir,
            "source": settings.source,
            "log": settings.log,
            "state": settings.state,
            "limits": settings.limits,
            "until": "now" if settings.once else None,
        },
        "delivery": {
            "state_dir": state_dir,
            "changefeeds": without_mask_keys(changefeeds),
            **spool_settings(settings.limits),
        },
        "driver": {"state_dir": state_dir, "changefeeds": dict(changefeeds), "spark": settings.spark},
    }


def without_mask_keys(changefeeds: Mapping[str, Settings]) -> dict[str, Settings]:
    """The settings for a process that masks nothing."""
    return {name: {key: one for key, one in value.items() if key != "mask_key"} for name, value in changefeeds.items()}
