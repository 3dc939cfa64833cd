"""The `log:` part of the configuration: every setting of the log and of its read cache (docs/log-settings.md).

Plain data; unknown keys are refused. It stands here because capture is the log's single writer and opens it by these
settings. What a sink still needs always stays, whatever they say. Values carry their unit, so the keys do not:
`ledger_age_max: 4h` is `ledger_age_max_seconds`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.errors import BadInput
from penstock.log import LogSettings
from penstock.objects import checked_url
from penstock.quantities import Seconds, Size

_SIZE_MAX = 1 << 50
_SECONDS_MAX = 100 * 365 * 86_400.0
Bytes = Annotated[Size, Field(ge=0, le=_SIZE_MAX)]
SomeBytes = Annotated[Size, Field(ge=1, le=_SIZE_MAX)]
Time = Annotated[Seconds, Field(ge=0, le=_SECONDS_MAX)]
SomeTime = Annotated[Seconds, Field(gt=0, le=_SECONDS_MAX)]
Count = Annotated[int, Field(ge=0, le=1 << 31, strict=True)]
SomeCount = Annotated[int, Field(ge=1, le=1 << 31, strict=True)]
_DEFAULT = LogSettings()
LEDGERS_MIN = 8  # that a log at its limit has: the open one and those since the state's oldest checkpoint never go


class Keep(BaseModel):
    """Entries that every sink has are deleted when they are older than `for`, or when the log is larger than `size`. Without
    either they are deleted at once: a log that nobody trims fills the disk. With `size` alone, age does not matter."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    for_: Annotated[Time | None, Field(alias="for")] = 0.0
    size: Bytes | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_size_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("size") is not None and not {"for", "for_"} & value.keys():
            return {**value, "for": None}
        return value


class LimitsConfig(BaseModel):
    """The `limits:` part of the configuration. Capture pauses while the log is as large as `log_disk`, or while its disk has
    less than `disk_free` left: keepers, cursors and checkpoints write there too. `spool_disk` and `spool_memory` are of each
    sink, and for delivery; None: its own defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    log_disk: Annotated[Size, Field(ge=1 << 20, le=_SIZE_MAX)] | None = None
    disk_free: Bytes = 128 << 20
    spool_disk: Annotated[Size, Field(ge=1 << 20, le=_SIZE_MAX)] | None = None
    spool_memory: Annotated[Size, Field(ge=1 << 20, le=_SIZE_MAX)] | None = None


class Offload(BaseModel):
    """Full ledgers beyond the newest `keep_local` bytes are copied to `url` in parts, and deleted locally `lag` later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    keep_local: Bytes = 1 << 30
    lag: Time = _DEFAULT.offload_deletion_lag_seconds
    part: SomeBytes = _DEFAULT.offload_part_bytes

    @field_validator("url")
    @classmethod
    def _a_place(cls, value: str) -> str:
        if "://" not in value:
            return value  # a directory: loading the configuration turns it into a URL
        try:
            return checked_url(value)
        except BadInput as error:
            raise ValueError(f"{error.message}; {error.hint}") from error


class CacheConfig(BaseModel):
    """The cache of entries that each process of the flow reads through, and what its reads hold at a time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: Bytes = 64 << 20
    in_flight: SomeBytes = 64 << 20


class LogConfig(BaseModel):
    """`ledger` is the size of one file of the log: the unit of trimming and offloading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ledger: Annotated[Size, Field(ge=64 << 10, le=4 << 30)] = _DEFAULT.ledger_bytes_max
    ledger_entries_max: SomeCount = _DEFAULT.ledger_entries_max
    ledger_age_min: Time = _DEFAULT.ledger_age_min_seconds
    ledger_age_max: Time | None = _DEFAULT.ledger_age_max_seconds
    ledger_idle_max: Time | None = _DEFAULT.ledger_idle_max_seconds
    ledger_switches_max: Count = _DEFAULT.ledger_switches_max
    preallocate: Bytes = _DEFAULT.preallocate_bytes
    waiting_max: SomeBytes = _DEFAULT.waiting_bytes_max
    stall_max: SomeTime | None = _DEFAULT.stall_seconds_max
    read_attempts_max: SomeCount = _DEFAULT.read_attempts_max
    maintenance_interval: Time = _DEFAULT.maintenance_interval_seconds
    cursor_inactive_max: Time | None = _DEFAULT.cursor_inactive_seconds_max
    cache: CacheConfig = CacheConfig()
    keep: Keep = Keep()
    offload: Offload | None = None

    def settings(self, log_disk: int | None = None) -> LogSettings:
        """What the log is opened with. What every sink has goes before the log is as large as `log_disk`, whatever `keep`
        says: it is not worth a pause. Whole ledgers go, and not the last few: so a ledger is an eighth of the limit at most."""
        offload = self.offload
        size, ledger, preallocate = self.keep.size, self.ledger, self.preallocate
        if log_disk is not None:
            ledger, preallocate = min(ledger, log_disk // LEDGERS_MIN), min(preallocate, log_disk // LEDGERS_MIN)
            most = log_disk - 2 * ledger
            size = most if size is None else min(size, most)
        return LogSettings(
            ledger_bytes_max=ledger,
            ledger_entries_max=self.ledger_entries_max,
            ledger_age_min_seconds=self.ledger_age_min,
            ledger_age_max_seconds=self.ledger_age_max,
            ledger_idle_max_seconds=self.ledger_idle_max,
            ledger_switches_max=self.ledger_switches_max,
            preallocate_bytes=preallocate,
            waiting_bytes_max=self.waiting_max,
            stall_seconds_max=self.stall_max,
            read_attempts_max=self.read_attempts_max,
            maintenance_interval_seconds=self.maintenance_interval,
            cursor_inactive_seconds_max=self.cursor_inactive_max,
            retention_seconds=self.keep.for_,
            retention_bytes=size,
            trim_without_cursors=False,  # capture begins before the sinks have their cursors
            offload_url=offload.url if offload else None,
            offload_threshold_bytes=offload.keep_local if offload else None,
            offload_deletion_lag_seconds=offload.lag if offload else _DEFAULT.offload_deletion_lag_seconds,
            offload_part_bytes=offload.part if offload else _DEFAULT.offload_part_bytes,
        )
