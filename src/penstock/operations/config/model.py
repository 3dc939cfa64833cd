"""The configuration as a whole: the sections of penstock.yaml, each with the model of the package that it is for."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.capture.log_config import LogConfig
from penstock.delivery.settings import SinkSettings
from penstock.sources.settings import SourceSettings

_NAME = re.compile(r"^[a-z][a-z0-9_-]{0,62}$")


class Config(BaseModel):
    """One flow from a source to its sinks. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    state_dir: Path = Path("./penstock-data")
    source: SourceSettings
    sinks: dict[str, SinkSettings] = Field(min_length=1)
    log: LogConfig = LogConfig()
    spark: dict[str, str] = Field(default_factory=dict)

    @field_validator("version")
    @classmethod
    def _known_version(cls, value: int) -> int:
        if value != 1:
            raise ValueError(f"version {value} is not known here; this Penstock reads version 1")
        return value

    @field_validator("sinks")
    @classmethod
    def _sink_names(cls, value: dict[str, SinkSettings]) -> dict[str, SinkSettings]:
        for name in value:
            if not _NAME.match(name):
                raise ValueError(f"sink name {name!r}: use lower-case letters, digits, - and _, at most 63")
        return value
