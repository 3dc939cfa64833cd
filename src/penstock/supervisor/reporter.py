"""Makes a run's status out of what its parts know. Used only by the thread of the run; the result is immutable."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from penstock.changefeed.facts import DispatcherFacts
from penstock.changefeed.keeper import Keeper
from penstock.changefeed.lag import Lag
from penstock.clock import Clock
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.schema.quoting import shell_word
from penstock.supervisor.feeds.changefeeds import Changefeeds
from penstock.supervisor.health.binlog_headroom import BinlogHeadroom
from penstock.supervisor.health.rates import Rate
from penstock.supervisor.health.source_health import SourceHealth
from penstock.supervisor.restarts import ChildSlot
from penstock.supervisor.settings import RunSettings
from penstock.supervisor.status import (
    ChangefeedState,
    ChangefeedStatus,
    LoadStatus,
    LogStatus,
    ParkedTable,
    PausedTable,
    RunStatus,
    SourceStatus,
    XaStatus,
    table_state,
)

PAUSED_TABLES_MAX = 50  # that are named
SMALL_FILES_MIN = 20  # of this run, before their size says something
SMALL_FILE_BYTES = 1 << 20  # readers open each file: smaller ones cost more to open than to read

Phase = Literal["starting", "running", "draining", "stopped"]


@dataclass(slots=True)
class Totals:
    rows: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(slots=True)
class Watched:
    """A changefeed as the reporter sees it. `before` is what was delivered before this run began."""

    keeper: Keeper
    lag: Lag
    before: Totals = field(default_factory=Totals)
    rate: Rate = field(default_factory=Rate)  # of rows

    @classmethod
    def of(cls, keeper: Keeper, reader: LogReader) -> Watched:
        return cls(keeper, Lag(keeper, reader), totals(keeper))


def totals(keeper: Keeper) -> Totals:
    """What the changefeed delivered in all runs together."""
    facts = keeper.snapshot().values()
    return Totals(sum(f.rows for f in facts), sum(f.files for f in facts), sum(f.bytes for f in facts))


class Reporter:
    def __init__(
        self,
        settings: RunSettings,
        slots: dict[str, ChildSlot],
        clock: Clock,
        feeds: Changefeeds,
        headroom: BinlogHeadroom | None = None,
    ) -> None:
        self._headroom = headroom
        self._settings = settings
        self._feeds = feeds
        self._slots = slots
        self._clock = clock
        self._started_ms = clock.wall_ms()
        self.watched: dict[str, Watched] = {}
        self._log_growth = Rate()
        self.reader: LogReader | None = None
        self._source_position: dict[str, Any] | None = None
        self._source_positions: dict[str, Any] | None = None
        self._source_lag_seconds: float | None = None
        self._parked: tuple[ParkedTable, ...] = ()
        self._parked_count = 0
        self._xa = XaStatus()
        self._health = SourceHealth(str(settings.source.get("type", "")), slots["capture"], clock)
        self._load: LoadStatus | None = None

    def on_capture_event(self, event: dict[str, Any]) -> None:
        """Keeps what capture says about the source."""
        self._health.on_event(event)
        position, lag_ms = event.get("position"), event.get("lag_ms")
        if isinstance(position, dict):
            self._source_position = position
        if isinstance(lag_ms, int):
            self._source_lag_seconds = lag_ms / 1000
        positions, parked = event.get("positions"), event.get("parked")
        if isinstance(positions, dict):
            self._source_positions = positions
        if isinstance(parked, dict):
            self._parked = tuple(ParkedTable.model_validate(one) for one in parked["tables"])
            self._parked_count = int(parked["count"])
        if isinstance(event.get("load"), dict):
            self._load = LoadStatus.model_validate(event["load"])
        if isinstance(event.get("xa"), dict):
            self._xa = XaStatus.model_validate(event["xa"])

    def delivered(self) -> Totals:
        """What this run brought to the sinks so far."""
        total = Totals()
        for watched in self.watched.values():
            now = totals(watched.keeper)
            total.rows += now.rows - watched.before.rows
            total.files += now.files - watched.before.files
            total.bytes += now.bytes - watched.before.bytes
        return total

    def status(self, phase: Phase, delivery: dict[str, Any], note: str = "") -> RunStatus:
        now_ms = self._clock.wall_ms()
        feeds = tuple(self._feed(name, phase, delivery, now_ms) for name in self._feeds.settings)
        delivered = self.delivered()
        return RunStatus(
            pid=os.getpid(),
            started_ms=self._started_ms,
            now_ms=now_ms,
            phase=phase,
            rows=delivered.rows,
            files=delivered.files,
            bytes=delivered.bytes,
            lag_seconds=max((feed.lag_seconds for feed in feeds), default=0.0),
            restarts=sum(slot.restarts for slot in self._slots.values()),
            source=self._source(phase),
            log=self._log(feeds),
            changefeeds=feeds,
            children=tuple(slot.status() for slot in self._slots.values()),
            parked=self._parked,
            parked_count=self._parked_count,
            note=note,
        )

    def _log(self, feeds: tuple[ChangefeedStatus, ...]) -> LogStatus:
        behind = [f for f in feeds if f.backlog_entries and f.mark_delete is not None]
        slowest = min(behind, key=lambda f: Position.parse(str(f.mark_delete)), default=None)
        limit = self._settings.limits.get("log_disk")
        size = _directory_bytes(self._settings.state_dir / "log")
        if self.reader is not None:  # not what its files have: they get their space ahead of what is written
            self._log_growth.note(self._clock.monotonic(), sum(view.frames_end for view in self.reader.ledgers()))
        growth = self._log_growth.per_second
        full = (int(limit) - size) / growth if limit is not None and growth is not None and growth > 0 else None
        return LogStatus(
            bytes=size,
            full_seconds=max(0.0, full) if full is not None else None,
            end=str(self.reader.end()) if self.reader is not None else None,
            bytes_max=int(limit) if limit is not None else None,
            pinned_by=slowest.name if slowest is not None else None,
            paused=self._health.paused,
        )

    def _source(self, phase: Phase) -> SourceStatus:
        return SourceStatus(
            type=str(self._settings.source.get("type", "unknown")),
            state=self._slots["capture"].state,
            place=_place(self._settings.source),
            server=self._headroom.server if self._headroom is not None else "",
            position=self._source_position,
            positions=self._source_positions,
            lag_seconds=self._source_lag_seconds,
            heard_ms=self._health.heard_ms,
            problem=self._health.problem() if phase in ("starting", "running") else "",
            headroom=self._headroom.of_position(self._source_position) if self._headroom is not None else None,
            xa=self._xa,
            load=self._load,
        )

    def _feed(self, name: str, phase: Phase, delivery: dict[str, Any], now_ms: int) -> ChangefeedStatus:
        watched = self.watched.get(name)
        state = self._state(phase, opened=watched is not None)
        note = _note(name, delivery, self._slots)
        failure = self._feeds.failed.get(name)
        if failure is not None:
            note = f"{failure.message}; penstock resume {name} tries again"
        if note and state == "running":
            state = "recovering" if failure is None else "failed"
        if watched is None:
            return ChangefeedStatus(name=name, state=state, note="waits for capture to make the log")
        keeper = watched.keeper
        if keeper.paused_ms is not None and state not in ("stopping", "stopped"):
            state, note = "paused", f"penstock resume {name} lets it go on"
        facts = keeper.snapshot().values()
        seen = delivery.get("changefeeds", {}).get(name, {})
        paused = keeper.left_out
        total = totals(keeper)
        watched.rate.note(self._clock.monotonic(), total.rows)
        return ChangefeedStatus(
            name=name,
            state=state,
            rows=total.rows,
            rows_per_second=watched.rate.per_second,
            files=total.files,
            bytes=total.bytes,
            tables=len({(f.schema, f.table) for f in facts}),
            lag_seconds=watched.lag.seconds(now_ms),
            backlog_entries=keeper.backlog(),
            spool_bytes=int(seen.get("spool_bytes") or 0),
            mark_delete=str(keeper.mark_delete),
            published_end=str(keeper.published_end),
            checkpoint_ts=keeper.checkpoint_ts,
            last_write_ms=max((f.last_write_ms for f in facts), default=0) or None,
            paused_ms=keeper.paused_ms,
            paused_tables=_paused_tables(name, paused, seen.get("dispatchers") or {}),
            paused_tables_count=len(paused),
            replaying=tuple(sorted(seen.get("replaying") or ())),
            advice=_advice(name, self._feeds.settings[name], total, watched.before),
            note=note,
        )

    def _state(self, phase: Phase, *, opened: bool) -> ChangefeedState:
        if phase == "draining":
            return "stopping"
        if phase == "stopped":
            return "stopped"
        path = (self._slots["delivery"], self._slots["driver"])
        if any(slot.state in ("waiting", "failed") or (slot.restarts and slot.state == "starting") for slot in path):
            return "recovering"
        if not opened or any(slot.state == "starting" for slot in path):
            return "starting"
        return "running"


def _advice(name: str, settings: dict[str, Any], total: Totals, before: Totals) -> str:
    """That the files of this run are small for what was asked for, and the key that makes them larger; else empty."""
    flush, files = settings.get("flush"), total.files - before.files
    if not isinstance(flush, dict) or files < SMALL_FILES_MIN:
        return ""
    mean, wanted = (total.bytes - before.bytes) / files, int(flush.get("size") or 0)
    if mean >= min(SMALL_FILE_BYTES, wanted / 2):
        return ""
    every = float(flush.get("every") or 0)
    return f"files of {mean / (1 << 20):.2f} MiB on average → raise sinks.{name}.flush.every (now {every:g}s)"


def _note(name: str, delivery: dict[str, Any], slots: dict[str, ChildSlot]) -> str:
    """The first problem, in the words of the child or table that has it; empty if there is none."""
    for slot in (slots["delivery"], slots["driver"]):
        if slot.note and slot.state != "starting":
            return f"{slot.name} {slot.note}"
        if slot.silence:
            return f"{slot.name} {slot.silence}"
    if note := slots["driver"].feed_notes.get(name):
        return f"driver {note}"
    feed = delivery.get("changefeeds", {}).get(name, {})
    for dispatcher in dict(feed.get("dispatchers", {})).values():
        if dispatcher.get("last_error"):
            attempts = int(dispatcher.get("attempts") or 0)
            state = table_state(str(dispatcher.get("state", "")), attempts)
            state += f", attempt {attempts}" if attempts and state == "retrying" else ""
            return f"{dispatcher.get('schema')}.{dispatcher.get('table')} {state}: {dispatcher['last_error']}"
    return ""


def _paused_tables(
    name: str, paused: dict[str, DispatcherFacts], delivery: dict[str, dict[str, Any]]
) -> tuple[PausedTable, ...]:
    found = [
        PausedTable(
            table=(table := f"{facts.schema}.{facts.table}"),
            since_ms=facts.left_out_ms,
            held_rows=delivery.get(dispatcher, {}).get("held_rows"),
            command=f"penstock resume {name} --table {shell_word(table)}",
        )
        for dispatcher, facts in paused.items()
    ]
    return tuple(sorted(found, key=lambda one: one.table)[:PAUSED_TABLES_MAX])


def _place(source: dict[str, Any]) -> str:
    if source.get("type") not in ("mariadb", "mysql"):
        return ""
    return str(source.get("unix_socket") or source.get("host") or "")


def _directory_bytes(directory: Path) -> int:
    try:
        with os.scandir(directory) as entries:
            return sum(entry.stat().st_size for entry in entries if entry.is_file())
    except FileNotFoundError:
        return 0
