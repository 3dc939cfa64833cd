"""What the planner and the tasks of a run must know: plain data that travels to the tasks as one JSON text.

The driver only passes on much of it. So modules that are slow to import are imported inside the functions that use them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.position import Position
    from penstock.sources.settings import Tables
    from penstock.spark.payload_split import Resume
    from penstock.spark.plan import PlanSettings

MIB = 1 << 20


@dataclass(frozen=True)
class Job:
    """One run of one changefeed. `resume` is the keeper's answer: {dispatcher: {epoch, progress, intent_last_seq}}."""

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
    resume: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        value = json.loads(text)
        for name in ("only", "exclude", "source_include", "source_exclude", "rules"):
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

    def resume_of(self, dispatcher: str) -> Resume:
        """Where the dispatcher continues; one that the keeper does not know starts at the first epoch, without
        progress."""
        found = self.resume_table.get(dispatcher)
        if found is not None:
            return found
        from penstock.delivery.payload import FIRST_EPOCH
        from penstock.spark.payload_split import Resume

        return Resume(FIRST_EPOCH)

    @cached_property
    def _filters(self) -> tuple[Tables, Tables]:
        from penstock.sources.settings import Tables  # pydantic is slow to import, and planning needs no filter

        own = Tables(include=self.only, exclude=self.exclude)
        return own, Tables(include=self.source_include, exclude=self.source_exclude)

    def wants(self, schema: str, table: str) -> bool:
        """Whether the changefeed takes the table: its own filter and the source's both include it; `exclude` wins."""
        return all(tables.matches(schema, table) for tables in self._filters)
