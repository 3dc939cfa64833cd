"""What a run says about itself: one typed model behind `status` of `control.sock`, the live progress and the commands
(`RunStatus`), and the summary at its end (`RunSummary`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

ChildState = Literal["starting", "running", "waiting", "stopping", "stopped", "failed"]
ChangefeedState = Literal["starting", "running", "paused", "recovering", "failed", "stopping", "stopped"]
_NOT_TRIED = ("left out", "paused", "stopped")  # states of a dispatcher


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
    """`where`: the condition of a backfill. `note`: why it waits, or why it ended early."""

    table: str
    rows: int
    estimate: int  # of the server's, at the start
    where: str = ""
    note: str = ""


class LoadStatus(_Model):
    """Loads: the initial one, of tables that were chosen later, backfills. `rows_left` is by the server's estimates; `loading`
    are some of the tables that are being read or wait, `ended` some whose load ended early. `begun_ms`: when the newest of
    them was asked for; 0 for an initial load."""

    tables: int
    done: int
    rows: int
    rows_left: int
    seconds_left: float | None = None
    begun_ms: int = 0
    loading: tuple[LoadingTable, ...] = ()
    ended: tuple[LoadingTable, ...] = ()


class HeadroomStatus(_Model):
    """The binlog file that a restart would read, and how long the server still keeps it, at least: `seconds` is None where that is
    not known; so is `expire_seconds` where it purges nothing by itself. `low`: it is time to act, or too late."""

    file: str
    oldest: str
    expire_seconds: float | None = None
    seconds: float | None = None
    low: bool = False


class SourceStatus(_Model):
    """`position` is the one that is saved. `positions` has them all (docs/cli.md, *Positions*); None before the first
    transaction of this process. `heard_ms` is when it sent something last, a heartbeat too. `problem`: why it is degraded;
    empty while it is well."""

    type: str
    state: ChildState
    place: str = ""  # the server's host, or its socket; empty for other sources
    server: str = ""  # family and version, once it has said so
    position: dict[str, Any] | None = None
    positions: dict[str, Any] | None = None
    lag_seconds: float | None = None
    heard_ms: int | None = None
    problem: str = ""
    headroom: HeadroomStatus | None = None  # None: not known, or nobody purges this source
    xa: XaStatus = XaStatus()
    load: LoadStatus | None = None  # None where no table was ever loaded


class LogStatus(_Model):
    """`pinned_by` is the changefeed that has delivered least, where it has not delivered all; `full_seconds`: when the log meets
    its limit if it grows on as it did in the last minutes; None: it does not grow, or has none. `paused`: why capture
    appends nothing now."""

    bytes: int = 0
    end: str | None = None
    bytes_max: int | None = None
    pinned_by: str | None = None
    full_seconds: float | None = None
    paused: str = ""


class PausedTable(_Model):
    """A table that somebody paused at one sink: `held_rows` of it were read since and are held back in the log; None where
    delivery does not say. `command` lets it go on."""

    table: str
    since_ms: int
    held_rows: int | None = None
    command: str


class ChangefeedStatus(_Model):
    """`lag_seconds` is the age of the oldest commit that is not at the sink; 0 when there is none. `failed`: it stands still
    by an error that does not heal, which `note` has; the others go on."""

    name: str
    state: ChangefeedState
    rows: int = 0
    rows_per_second: float | None = None  # of the last two minutes; None: too little was seen
    files: int = 0
    bytes: int = 0
    tables: int = 0
    lag_seconds: float = 0.0
    backlog_entries: int = 0
    spool_bytes: int = 0  # that wait in delivery, in memory and on disk
    mark_delete: str | None = None
    published_end: str | None = None
    checkpoint_ts: int = 0
    last_write_ms: int | None = None
    paused_ms: int | None = None  # since when; None: it is not
    paused_tables: tuple[PausedTable, ...] = ()  # the first fifty
    paused_tables_count: int = 0
    replaying: tuple[str, ...] = ()  # tables that were left out and are read again beside the others
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


def table_state(state: str, attempts: int) -> str:
    """What a table with an error is called. Between two tries it is `busy` as often as `retrying`; of one that is not tried any
    more the number of tries stays."""
    return "retrying" if attempts and state not in _NOT_TRIED else state


def is_well(run: RunStatus) -> bool:
    """Whether nothing is degraded: what exit code 0 of `penstock status` means."""
    return not (
        run.parked_count
        or run.source.problem
        or (run.source.headroom is not None and run.source.headroom.low)
        or any(feed.state in ("recovering", "failed") for feed in run.changefeeds)
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
    paused_tables: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by changefeed, tables of which the same holds
    failed: dict[str, str] = field(default_factory=dict)  # by changefeed, what stopped it for good
    driver_ready_seconds: float | None = None  # from the start of the run to the first driver that could work
    # By stage, all changefeeds together: the tasks' time, that of writes, and what the driver waited for.
    stage_seconds: dict[str, float] = field(default_factory=dict)
