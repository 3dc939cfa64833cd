"""What a run says about itself: one typed model behind `control.sock` `status`, the live progress and the front doors."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

ChildState = Literal["starting", "running", "waiting", "stopping", "stopped", "failed"]
ChangefeedState = Literal["starting", "running", "recovering", "stopping", "stopped"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ChildStatus(_Model):
    name: str
    state: ChildState
    pid: int | None = None
    restarts: int = 0
    note: str = ""


class SourceStatus(_Model):
    type: str
    state: ChildState
    position: dict[str, Any] | None = None
    lag_seconds: float | None = None


class LogStatus(_Model):
    bytes: int = 0
    end: str | None = None


class ChangefeedStatus(_Model):
    """`lag_seconds` is the age of the oldest commit that is not at the sink; 0 when there is none."""

    name: str
    state: ChangefeedState
    rows: int = 0
    files: int = 0
    bytes: int = 0
    tables: int = 0
    lag_seconds: float = 0.0
    backlog_entries: int = 0
    mark_delete: str | None = None
    published_end: str | None = None
    checkpoint_ts: int = 0
    last_write_ms: int | None = None
    note: str = ""


class RunStatus(_Model):
    """One moment of a run. `rows`, `files` and `bytes` count from the start of this run, over all changefeeds."""

    pid: int
    started_ms: int
    now_ms: int
    phase: Literal["starting", "running", "draining", "stopped"]
    rows: int = 0
    files: int = 0
    bytes: int = 0
    lag_seconds: float = 0.0
    restarts: int = 0
    source: SourceStatus
    log: LogStatus
    changefeeds: tuple[ChangefeedStatus, ...] = ()
    children: tuple[ChildStatus, ...] = ()
    note: str = ""
