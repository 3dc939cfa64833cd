"""The `log:` part of the configuration: how long the log keeps what every sink has, and where its old ledgers go.

Plain data; unknown keys are refused. It stands here because capture is the log's single writer and opens it by these
settings. What a sink still needs always stays, whatever they say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from penstock.errors import BadInput
from penstock.log import LogSettings
from penstock.objects import checked_url
from penstock.quantities import Seconds, Size


class Keep(BaseModel):
    """Entries that every sink has are deleted when they are older than `for`, or when the log is larger than `size`."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    for_: Annotated[Seconds | None, Field(ge=0, alias="for")] = None
    size: Annotated[Size | None, Field(ge=0)] = None


class Offload(BaseModel):
    """Full ledgers beyond the newest `keep_local` bytes are copied to `url`, and deleted locally `lag` later."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    keep_local: Annotated[Size, Field(ge=0)] = 1 << 30
    lag: Annotated[Seconds, Field(ge=0)] = 4 * 3600.0

    @field_validator("url")
    @classmethod
    def _a_place(cls, value: str) -> str:
        if "://" not in value:
            return value  # a directory: loading the configuration turns it into a URL
        try:
            return checked_url(value)
        except BadInput as error:
            raise ValueError(f"{error.message}; {error.hint}") from error


class LogConfig(BaseModel):
    """`ledger` is the size of one file of the log: the unit of trimming and offloading."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ledger: Annotated[Size, Field(ge=64 << 10, le=4 << 30)] = 256 << 20
    keep: Keep = Keep()
    offload: Offload | None = None

    def settings(self) -> LogSettings:
        """What the log is opened with."""
        settings = LogSettings(
            ledger_bytes_max=self.ledger, retention_seconds=self.keep.for_, retention_bytes=self.keep.size
        )
        if self.offload is None:
            return settings
        return replace(
            settings,
            offload_url=self.offload.url,
            offload_threshold_bytes=self.offload.keep_local,
            offload_deletion_lag_seconds=self.offload.lag,
        )
