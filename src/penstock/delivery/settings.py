"""The settings of a sink, as a user writes them under `sinks:`, and what the delivery process gets on standard
input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.delivery.spool.limits import (
    HIGH_BYTES,
    LOW_BYTES,
    MEMORY_HIGH_BYTES,
    MEMORY_LOW_BYTES,
    QUOTA_BYTES,
    SpoolLimits,
)
from penstock.encode.settings import (
    OPTIONS,
    CanalJsonOptions,
    CsvOptions,
    DebeziumJsonOptions,
    FormatName,
    FormatOptions,
    ParquetOptions,
    section_of,
)
from penstock.errors import BadInput, NotSupported
from penstock.objects import checked_url
from penstock.quantities import Seconds, Size
from penstock.rules.settings import Rule
from penstock.secret import harmless


class FlushSettings(BaseModel):
    """When a file is written: at `size` bytes of payload, or `every` seconds after its oldest payload came."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: Annotated[Size, Field(ge=1 << 10, le=512 << 20)] = 64 << 20
    every: Annotated[Seconds, Field(ge=0.05, le=3600.0)] = 60.0


class SinkSettings(BaseModel):
    """One sink. Its name in the configuration is the changefeed's name. The section that is called as the format has its
    options; a section of another format is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    format: FormatName
    flush: FlushSettings = FlushSettings()
    only: list[str] = ["*.*"]
    rules: tuple[Rule, ...] = ()  # after those for every sink
    poison: Literal["park", "dead-letter"] = "park"  # what becomes of a row that the format refuses
    expire_days: Annotated[int, Field(ge=0, le=36_500, strict=True)] = 0  # how long files are kept; 0: for ever
    canal_json: CanalJsonOptions | None = None
    csv: CsvOptions | None = None
    debezium_json: DebeziumJsonOptions | None = None
    parquet: ParquetOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _options(cls, value: Any) -> Any:
        """The options of the chosen format are always there, so that `penstock check` shows them all."""
        if not isinstance(value, dict) or value.get("format") not in OPTIONS:
            return value
        own = section_of(value["format"])
        for section in map(section_of, OPTIONS):
            if section != own and value.get(section) is not None:
                raise ValueError(f"{section}: has options of another format; this sink writes {value['format']}")
        return value if value.get(own) is not None else {**value, own: {}}

    @property
    def format_options(self) -> FormatOptions:
        options: FormatOptions = getattr(self, section_of(self.format))
        return options

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        try:
            _ = local_directory(url) if is_local(url) else checked_url(url)
        except BadInput as error:
            raise ValueError(str(error)) from error
        return url


class ChangefeedSettings(SinkSettings):
    """A sink as `penstock run` passes it on, with further keys that only the driver reads."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class DeliverySettings(BaseModel):
    """The document on standard input of `python -m penstock.delivery`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    state_dir: Path
    changefeeds: dict[str, ChangefeedSettings]
    log_uuid: str | None = None  # None: read from the log in the state directory when the first run begins
    writers: Annotated[int, Field(ge=1, le=512)] = 4  # threads per changefeed
    # Of each changefeed's spool: `delivery.spool.limits` says what they do.
    spool_high_bytes: Annotated[Size, Field(ge=1)] = HIGH_BYTES
    spool_low_bytes: Annotated[Size, Field(ge=0)] = LOW_BYTES
    spool_memory_high_bytes: Annotated[Size, Field(ge=1)] = MEMORY_HIGH_BYTES
    spool_memory_low_bytes: Annotated[Size, Field(ge=0)] = MEMORY_LOW_BYTES
    spool_quota_bytes: Annotated[Size, Field(ge=1)] = QUOTA_BYTES
    drain_seconds: Annotated[Seconds, Field(ge=0)] = 20.0  # at the end, for what is still in the spool

    @model_validator(mode="after")
    def _hysteresis(self) -> DeliverySettings:
        try:
            self.spool_limits()
        except BadInput as error:
            raise ValueError(str(error)) from error
        return self

    def spool_limits(self) -> SpoolLimits:
        return SpoolLimits(
            high_bytes=self.spool_high_bytes,
            low_bytes=self.spool_low_bytes,
            memory_high_bytes=self.spool_memory_high_bytes,
            memory_low_bytes=self.spool_memory_low_bytes,
            quota_bytes=self.spool_quota_bytes,
        )


def spool_settings(limits: Mapping[str, Any]) -> dict[str, int]:
    """Those of `DeliverySettings` that `limits:` in penstock.yaml decides: no new batch is planned from half of `spool_disk` on,
    until a quarter is left; what waits is spilled from half of `spool_memory` on."""
    found: dict[str, int] = {}
    disk, memory = limits.get("spool_disk"), limits.get("spool_memory")
    if disk is not None:
        found |= {"spool_quota_bytes": disk, "spool_high_bytes": disk // 2, "spool_low_bytes": disk // 4}
    if memory is not None:
        found |= {"spool_memory_high_bytes": memory, "spool_memory_low_bytes": memory // 2}
    return found


def spool_directory(state_dir: Path, changefeed: str) -> Path:
    """Where a changefeed's spool puts its segments: scratch, for this user alone."""
    return state_dir / "run" / "spool" / quote(changefeed, safe="")


def is_local(url: str) -> bool:
    """Whether the sink is a directory of this machine. A URL of an unknown kind counts as one: `local_directory` refuses
    it by name."""
    return url.partition("://")[0] not in {"s3", "gs", "az"} or "://" not in url


def local_directory(url: str) -> Path:
    """The directory of a `file://` URL (or of a plain path). Other schemes are refused by name.

    A message never quotes more of a URL than `harmless` leaves: other kinds of sinks have their credentials in it.
    """
    if "://" not in url:
        if not url:
            raise BadInput("an empty URL names no directory", hint="write file:///absolute/path")
        return Path(url).absolute()
    shown = harmless(url)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(f"{shown} is no URL: {error}", hint="write file:///absolute/path") from None
    if parts.scheme != "file":
        raise NotSupported(
            f"{shown}: sinks of the kind {parts.scheme}:// are not supported",
            hint="file:///absolute/path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix",
        )
    if parts.netloc not in ("", "localhost"):
        raise BadInput(
            f"{shown}: a file URL names no host, but this one does",
            hint="write file:///absolute/path, with three slashes",
        )
    if parts.query or parts.fragment:
        raise BadInput(f"{shown}: a file URL ends with its path", hint="in a path, write ? as %3F and # as %23")
    if not parts.path:
        raise BadInput(f"{shown} names no directory", hint="write file:///absolute/path")
    return Path(unquote(parts.path)).absolute()
