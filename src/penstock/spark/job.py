"""What the planner and the tasks of a run must know: plain data that travels to the tasks as one JSON text.

The driver only passes on much of it. So modules that are slow to import are imported inside the functions that use them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.log.position import Position
    from penstock.rules.versions import SettingsVersion
    from penstock.spark.payload_split import Resume
    from penstock.spark.plan import PlanSettings

MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """One run of one changefeed. `resume` is the keeper's answer: {dispatcher: {epoch, progress, intent_last_seq, left_out}}."""

    state_dir: str
    delivery_socket: str
    changefeed: str
    run: str
    start: str
    format: str
    format_options: dict[str, Any] = field(default_factory=dict)
    only: tuple[str, ...] = ("*.*",)
    exclude: tuple[str, ...] = ()
    source_include: tuple[str, ...] = ("*.*",)
    source_exclude: tuple[str, ...] = ()
    batch_bytes_max: int = 256 * MIB
    range_bytes_min: int = 4 * MIB
    parallelism: int = 2
    cache_bytes_max: int = 64 * MIB  # of the log, in each process that reads it
    in_flight_bytes_max: int = 64 * MIB
    read_attempts_max: int = 3
    poison: str = "park"  # what becomes of a row that the format refuses: park | dead-letter
    rules: tuple[dict[str, Any], ...] = ()  # as in penstock.yaml, those for every sink first
    mask_key_file: str = ""  # for this user alone; the key itself would be seen in Spark's plans
    # The versions of the settings that shape rows, as the keeper recorded them; where it has none, those above hold.
    settings: tuple[dict[str, Any], ...] = ()
    resume: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        value = json.loads(text)
        for name in ("only", "exclude", "source_include", "source_exclude", "rules", "settings"):
            value[name] = tuple(value[name])
        return cls(**value)

    @property
    def log_directory(self) -> Path:
        return Path(self.state_dir) / "log"

    def configure_cache(self) -> None:
        """Called in each process that reads the log: its cache is as large as the configuration says."""
        from penstock.log import configure_cache

        configure_cache(self.cache_bytes_max, self.in_flight_bytes_max)

    @property
    def start_position(self) -> Position:
        from penstock.log.position import Position

        return Position.parse(self.start)

    @property
    def plan_settings(self) -> PlanSettings:
        from penstock.spark.plan import PlanSettings

        return PlanSettings(self.batch_bytes_max, self.range_bytes_min, self.parallelism)

    @cached_property
    def resume_table(self) -> dict[str, Resume]:
        from penstock.spark.payload_split import Resume

        return {dispatcher: Resume.from_json(value) for dispatcher, value in self.resume.items()}

    def resume_of(self, dispatcher: str, later: Mapping[str, dict[str, Any]] = MappingProxyType({})) -> Resume:
        """Where the dispatcher continues; one that the keeper does not know starts at the first epoch, without
        progress. What `later` says, in the keeper's words, counts before the run's resume table."""
        if dispatcher in later:
            from penstock.spark.payload_split import Resume

            return Resume.from_json(later[dispatcher])
        found = self.resume_table.get(dispatcher)
        if found is not None:
            return found
        from penstock.delivery.payload import FIRST_EPOCH
        from penstock.spark.payload_split import Resume

        return Resume(FIRST_EPOCH)

    @cached_property
    def boundaries(self) -> tuple[Position, ...]:
        """Where versions of the settings begin, ascending: no range has rows on both sides of one."""
        from penstock.log.position import Position

        return tuple(Position.parse(version["since"]) for version in self.settings)

    @property
    def has_sql(self) -> bool:
        """Whether a rule, of any version of the settings, needs Spark SQL."""
        rules = [rule for version in self.settings for rule in version["settings"].get("rules", ())]
        return any(rule.get("sql") for rule in (*rules, *self.rules))

    def settings_versions(self) -> list[SettingsVersion]:
        from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion

        if self.settings:
            return [SettingsVersion.from_json(version) for version in self.settings]
        return [SettingsVersion(BEGINNING, 0, RowSettings.of(asdict(self), self.mask_key()))]

    def mask_key(self) -> str | None:
        """The key as the configuration has it: whatever the line ends in it, and the locale of the worker."""
        return Path(self.mask_key_file).read_bytes().decode() if self.mask_key_file else None
