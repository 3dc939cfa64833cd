"""The settings of a sink, as a user writes them under `sinks:`, and what the delivery process gets on standard
input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from penstock.errors import BadInput, NotSupported
from penstock.quantities import Seconds, Size
from penstock.secret import harmless


class FlushSettings(BaseModel):
    """When a file is written: at `size` bytes of payload, or `every` seconds after its oldest payload came."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: Annotated[Size, Field(ge=1 << 10, le=512 << 20)] = 64 << 20
    every: Annotated[Seconds, Field(ge=0.05, le=3600.0)] = 60.0


class SinkSettings(BaseModel):
    """One sink. Its name in the configuration is the changefeed's name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    format: Literal["canal-json", "parquet"]
    flush: FlushSettings = FlushSettings()
    only: list[str] = ["*.*"]

    @field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        try:
            local_directory(url)
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
    spool_high_bytes: Annotated[Size, Field(ge=1)] = 512 << 20
    spool_low_bytes: Annotated[Size, Field(ge=0)] = 256 << 20
    drain_seconds: Annotated[Seconds, Field(ge=0)] = 20.0  # at the end, for what is still in the spool

    @model_validator(mode="after")
    def _hysteresis(self) -> DeliverySettings:
        if self.spool_low_bytes > self.spool_high_bytes:
            raise ValueError("spool_low_bytes is above spool_high_bytes")
        return self


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
            f"{shown}: sinks of the kind {parts.scheme}:// are not supported yet", hint="use file:///absolute/path"
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
