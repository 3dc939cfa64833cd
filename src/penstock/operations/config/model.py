"""The configuration as a whole: the sections of penstock.yaml, each with the model of the package that it is for.

What is made from a configuration is here too: the settings of a run, and for `penstock check` every setting in force.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.capture.log_config import LimitsConfig, LogConfig
from penstock.capture.state_config import StateConfig
from penstock.delivery.settings import SinkSettings
from penstock.errors import BadInput
from penstock.quantities import AS_WRITTEN
from penstock.rules.settings import Rule, check_key, rules_to_json, uses_key
from penstock.secret import Secret, is_secret_setting
from penstock.sources.settings import ServerSettings, SourceSettings, Tables, process_settings
from penstock.supervisor.http.server import is_loopback, parse_listen
from penstock.supervisor.settings import RunSettings

_NAME = re.compile(r"^[a-z][a-z0-9_-]{0,62}$")
# What Spark puts into the arguments or the environment of a process, where others can read it.
_SEEN_BY_OTHERS = ("javaoptions", "executorenv.", "appmasterenv.")


class HttpConfig(BaseModel):
    """Where a run serves /metrics, /healthz and /readyz. An address that other machines reach is refused unless
    `allow_remote` says that this is meant: there is no login."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: str
    allow_remote: bool = False

    @model_validator(mode="after")
    def _an_address(self) -> HttpConfig:
        try:
            host, _ = parse_listen(self.listen)
        except BadInput as error:
            raise ValueError(f"{error.message}; {error.hint}") from None
        if not is_loopback(host) and not self.allow_remote:
            raise ValueError(
                f"{self.listen} can be reached from other machines, and nobody has to log in there; "
                "listen on 127.0.0.1, or set allow_remote: true"
            )
        return self


class Config(BaseModel):
    """One flow from a source to its sinks. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")

    version: int = 1
    state_dir: Path = Path("./penstock-data")
    source: SourceSettings
    rules: tuple[Rule, ...] = ()  # for every sink; a sink's own come after them
    sinks: dict[str, SinkSettings] = Field(min_length=1)
    log: LogConfig = LogConfig()
    state: StateConfig = StateConfig()
    limits: LimitsConfig = LimitsConfig()
    http: HttpConfig | None = None
    spark: dict[str, str | Secret] = Field(default_factory=dict)
    mask_key: Secret | None = None

    def rules_of(self, sink: str) -> tuple[Rule, ...]:
        """All rules of a sink, in the order in which they are applied."""
        return (*self.rules, *self.sinks[sink].rules)

    def mask_key_of(self, sink: str) -> str | None:
        """The key of its masks; None where none of them needs it."""
        return self.mask_key.reveal() if self.mask_key is not None and uses_key(self.rules_of(sink)) else None

    @model_validator(mode="after")
    def _keyed(self) -> Config:
        rules = [rule for name in self.sinks for rule in self.rules_of(name)]
        check_key(rules, self.mask_key.reveal() if self.mask_key is not None else None)
        return self

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

    @field_validator("spark", mode="before")
    @classmethod
    def _spark_secrets(cls, value: Any) -> Any:
        """Which of Spark's settings are secrets is told by their names, and by credentials inside their values."""
        if not isinstance(value, dict):
            return value
        settings: dict[str, str | Secret] = {}
        for key, written in value.items():
            if not isinstance(key, str) or not isinstance(written, str | int | float | Secret):
                raise ValueError(f"{key}: a name of Spark's and a text, a number, true or false are wanted")
            if isinstance(written, Secret):
                settings[key] = written
                continue
            text = str(written).lower() if isinstance(written, bool) else str(written)
            secret = is_secret_setting(key, text)
            if secret and any(place in key.lower() for place in _SEEN_BY_OTHERS):
                raise ValueError(
                    f"{key} holds a secret, which other users of this machine could read in the process list; "
                    "give it in a setting of its own"
                )
            settings[key] = Secret(text) if secret else text
        return settings


class Places(BaseModel):
    """Where a flow is, what its sinks are called and which tables it follows; the rest of the file may be wrong."""

    state_dir: Path = Path("./penstock-data")
    sinks: tuple[str, ...] = ()
    tables: Tables = Tables()


def run_settings(config: Config, *, once: bool) -> RunSettings:
    """The settings of `penstock.supervisor.supervisor.run` for this configuration."""
    return RunSettings(
        state_dir=config.state_dir,
        source=process_settings(config.source),
        changefeeds={name: changefeed_settings(config, name) for name in config.sinks},
        log=config.log.model_dump(mode="json", by_alias=True),
        state=config.state.model_dump(mode="json"),
        limits=config.limits.model_dump(mode="json"),
        spark=dict(config.spark),
        http_listen=config.http.listen if config.http is not None else None,
        once=once,
    )


def exposures_of(config: Config) -> list[str]:
    """What the configuration exposes to others on the network or the machine: sentences for each start."""
    source = config.source.exposure() if isinstance(config.source, ServerSettings) else ""
    return [one for one in (source, _cluster_exposure(config.spark)) if one]


def _cluster_exposure(spark: Mapping[str, str | Secret]) -> str:
    """Of Spark's port of the driver: results of tasks come through it, which Python loads as it loads programs."""
    settings = {key.removeprefix("spark."): str(value) for key, value in spark.items()}
    master = settings.get("master", "local")
    if master.startswith("local") or settings.get("authenticate") == "true":
        return ""
    return (
        f"the driver of {master} answers whoever opens its port, with all settings of Spark, and runs what they send "
        "(spark.authenticate is not set: docs/spark.md)"
    )


def changefeed_settings(config: Config, name: str) -> dict[str, Any]:
    """One sink's settings as delivery and the driver read them: the sink's own, the source's filter of tables, and how
    a process reads the log: how much of it it keeps in memory, and how often it tries."""
    tables = config.source.tables
    key = config.mask_key  # also where no rule of now needs it: rows of before may wait that do
    return {
        **config.sinks[name].model_dump(mode="json", exclude_none=True),
        "rules": rules_to_json(config.rules_of(name)),
        **({"mask_key": key} if key is not None else {}),
        "source_include": list(tables.include),
        "source_exclude": list(tables.exclude),
        "cache_bytes_max": config.log.cache.size,
        "in_flight_bytes_max": config.log.cache.in_flight,
        "read_attempts_max": config.log.read_attempts_max,
    }


@dataclass(frozen=True, slots=True)
class Finding:
    """One setting in force, and its value as text."""

    key: str
    value: str


def describe(config: Config) -> list[Finding]:
    """Every setting in force, defaults included, in the file's order and under its keys."""
    return [Finding(key, text) for key, text in _walk(config.model_dump(by_alias=True, context=AS_WRITTEN), "")]


def _walk(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _walk(child, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple) and value and isinstance(value[0], dict):
        for at, child in enumerate(value):
            yield from _walk(child, f"{key}.{at}")
    elif value not in (None, [], (), {}):
        yield key, _written(value)


def _written(value: Any) -> str:
    """A value as people write it."""
    if isinstance(value, Secret):
        return "(hidden)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(_written, value))
    return f"{value:g}" if isinstance(value, float) and value == int(value) and abs(value) < 1e6 else str(value)
