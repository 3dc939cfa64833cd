"""What a run says about itself: one typed model behind `status` of `control.sock`, the live progress and the commands
(`RunStatus`), and the summary at its end (`RunSummary`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

ChildState = Literal["starting", "running", "waiting", "stopping", "stopped", "failed"]
ChangefeedState = Literal["starting", "running", "paused", "recovering", "stopping", "stopped"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ChildStatus(_Model):
    name: str
    state: ChildState
    pid: int | None = None
    restarts: int = 0
    note: str = ""


class ParkedTable(_Model):
    """A table that waits for `command`: `statement` came and nobody understood it, `statements_after` more since. An empty
    statement: its rows do not fit what is known of it. Its rows are in the log, and nothing of them is lost, unless
    `rows_missing`: then a statement was logged instead of the rows that it changed."""

    table: str
    since_ms: int
    statement: str
    reason: str
    statements_after: int = 0
    rows_missing: bool = False
    command: str


class HeldXa(_Model):
    """An XA group that is prepared and has no outcome: the log keeps what is after `pins_after` until it has one."""

    xid: str
    since_ms: int
    file: str
    pos: int
    pins_after: str | None = None


class MissedXa(_Model):
    """An XA group that committed and was prepared before the log's start: its rows are not in the log."""

    xid: str
    committed_before: str


class XaStatus(_Model):
    held: tuple[HeldXa, ...] = ()  # the oldest twenty
    held_count: int = 0
    missed: tuple[MissedXa, ...] = ()  # twenty of them
    missed_count: int = 0


class LoadingTable(_Model):
    table: str
    rows: int
    estimate: int  # of the server's, at the start


class LoadStatus(_Model):
    """The initial load. `rows_left` is by the server's estimates; `loading` are some of the tables that are being read."""

    tables: int
    done: int
    rows: int
    rows_left: int
    seconds_left: float | None = None
    loading: tuple[LoadingTable, ...] = ()


class SourceStatus(_Model):
    """`position` is the one that is saved. `positions` has them all (docs/cli.md, *Positions*); None before the first
    transaction of this process. `heard_ms` is when it sent something last, a heartbeat too. `problem`: why it is degraded;
    empty while it is well."""

    type: str
    state: ChildState
    position: dict[str, Any] | None = None
    positions: dict[str, Any] | None = None
    lag_seconds: float | None = None
    heard_ms: int | None = None
    problem: str = ""
    xa: XaStatus = XaStatus()
    load: LoadStatus | None = None  # None where no table was ever loaded


class LogStatus(_Model):
    """`pinned_by` is the changefeed that has delivered least, where it has not delivered all; `paused`: why capture appends
    nothing now."""

    bytes: int = 0
    end: str | None = None
    bytes_max: int | None = None
    pinned_by: str | None = None
    paused: str = ""


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
    paused_ms: int | None = None  # since when; None: it is not
    advice: str = ""  # what would be better with another setting, and which
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
    parked: tuple[ParkedTable, ...] = ()  # the first fifty
    parked_count: int = 0
    note: str = ""


def is_well(run: RunStatus) -> bool:
    """Whether nothing is degraded: what exit code 0 of `penstock status` means."""
    return not (
        run.parked_count
        or run.source.problem
        or any(feed.state == "recovering" for feed in run.changefeeds)
        or any(child.state in ("failed", "waiting") for child in run.children)
    )


@dataclass(frozen=True, slots=True)
class RunSummary:
    """How a run ended. `rows`, `files` and `bytes` count what this run brought to the sinks."""

    exit_code: int  # of `penstock.process.EXIT_CODES`
    rows: int
    files: int
    bytes: int
    seconds: float
    drained: bool  # everything that is in the log is at the sinks
    message: str = ""
    hint: str = ""
    restarts: dict[str, int] = field(default_factory=dict)
    log_end: str | None = None
    mark_delete: dict[str, str] = field(default_factory=dict)
    left_bytes: dict[str, int] = field(default_factory=dict)  # of the log, by changefeed: not at its sink yet
    paused: tuple[str, ...] = ()  # changefeeds that somebody paused: nobody waited for them
    driver_ready_seconds: float | None = None  # from the start of the run to the first driver that could work
    stage_seconds: dict[str, float] = field(default_factory=dict)  # the tasks' time by stage, all changefeeds together
