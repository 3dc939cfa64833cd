"""How the flow is doing, and how far each changefeed has durably come: asked of the running process, or read from the
disk if none runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from penstock.changefeed.facts import DispatcherFacts
from penstock.changefeed.recovered import recorded_facts
from penstock.changefeed.settings_versions import recorded_versions
from penstock.entries.stores import (
    SCHEMA_HISTORY,
    SCHEMA_RESUMED,
    SOURCE,
    SOURCE_HELD,
    SOURCE_MISSED,
    SOURCE_POSITION,
)
from penstock.entries.xa_groups import xa_facts
from penstock.errors import BadInput, Unavailable
from penstock.files import REAL_FILES
from penstock.log import CursorTable, LogReader, Position
from penstock.operations.config.model import Places
from penstock.operations.forget import LeftSink, left_sinks
from penstock.process import EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED
from penstock.rules.versions import SettingsVersion
from penstock.schema.model import TableSchema
from penstock.schema.parking import parkings
from penstock.sources.settings import Tables
from penstock.state import StateReader
from penstock.supervisor.status import ParkedTable, RunStatus, XaStatus, is_well
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 5.0


class StoppedFeed(BaseModel):
    """What a changefeed has durably delivered."""

    name: str
    mark_delete: str | None = None


class StatusReport(BaseModel):
    """`run` is None if no process runs; `stopped` then holds what each changefeed has delivered, `position` where the next
    run reads on, `parked` the tables that wait for `penstock resume`, and `xa` the XA groups to know of. `left`: sinks that are not
    in the configuration, and still hold the log."""

    exit_code: int
    run: RunStatus | None = None
    stopped: tuple[StoppedFeed, ...] = ()
    position: dict[str, Any] | None = None
    parked: tuple[ParkedTable, ...] = ()
    xa: XaStatus = XaStatus()
    left: tuple[LeftSink, ...] = ()
    note: str = ""


def ask_run(state_dir: Path) -> RunStatus | None:
    """What the run that owns the state directory says; None if none answers."""
    path = socket_path(state_dir / "run", "control")
    if not path.exists():
        return None
    try:
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            return RunStatus.model_validate(client.call("status"))
    except Unavailable:
        return None


def check_sink(places: Places, sink: str | None) -> None:
    """Raises `BadInput` for a name that the configuration does not have."""
    if sink is not None and sink not in places.sinks:
        raise BadInput(f"there is no sink {sink!r}", hint=f"the configuration has {', '.join(places.sinks)}")


def of_sink(run: RunStatus, sink: str | None) -> RunStatus:
    """The same run, with the changefeed of one sink alone; None: with all."""
    if sink is None:
        return run
    return run.model_copy(update={"changefeeds": tuple(feed for feed in run.changefeeds if feed.name == sink)})


def read_status(config: Places, sink: str | None = None) -> StatusReport:
    """The status of the flow, with one sink or all; what the sinks share is always there, and counts in the exit code. Starts
    nothing and takes ownership of nothing."""
    check_sink(config, sink)
    run = ask_run(config.state_dir)
    if run is None:
        feeds = tuple(
            StoppedFeed(name=name, mark_delete=_mark_delete(config, name))
            for name in config.sinks
            if sink in (None, name)
        )
        position, parked, xa = _captured(config)
        return StatusReport(
            exit_code=EXIT_STOPPED,
            stopped=feeds,
            position=position,
            parked=parked,
            xa=xa,
            left=left_sinks(config),
            note=f"no penstock run owns {config.state_dir}",
        )
    run = of_sink(run, sink)
    return StatusReport(exit_code=EXIT_OK if is_well(run) else EXIT_DIFFERENT, run=run, left=left_sinks(config))


def parked_tables(state: StateReader, tables: Tables) -> tuple[ParkedTable, ...]:
    """The tables of the flow that are parked, as of the state."""
    done = {table.key for _, table in state.store(SCHEMA_RESUMED).items()}
    waiting: Iterable[TableSchema] = (
        table
        for _, table in state.store(SCHEMA_HISTORY).items()
        if table.key not in done and tables.matches(table.schema, table.table)
    )
    return tuple(ParkedTable.model_validate(parking.to_json()) for parking in parkings(waiting))


def _captured(config: Places) -> tuple[dict[str, Any] | None, tuple[ParkedTable, ...], XaStatus]:
    """What the log's state says: the saved position, the parked tables, and the XA groups to know of."""
    if not (config.state_dir / "log").exists():
        return None, (), XaStatus()
    try:
        with closing(LogReader.open(config.state_dir / "log")) as reader, closing(StateReader.open(reader)) as state:
            saved = state.store(SOURCE_POSITION).get(SOURCE)
            held = (group for _, group in state.store(SOURCE_HELD).items())
            xa = XaStatus.model_validate(xa_facts(held, state.store(SOURCE_MISSED).items()))
            return (asdict(saved) if saved else None), parked_tables(state, config.tables), xa
    except Unavailable:
        return None, (), XaStatus()


def _mark_delete(config: Places, name: str) -> str | None:
    """None if nothing was captured yet, or a run is just starting."""
    if not (config.state_dir / "log").exists():
        return None
    try:
        with closing(LogReader.open(config.state_dir / "log")) as reader:
            return str(delivered_through(config.state_dir, name, reader))
    except Unavailable:
        return None


def settings_versions(state_dir: Path, changefeed: str) -> tuple[SettingsVersion, ...]:
    """The versions of the settings that shape the changefeed's rows, as recorded; none where nothing was. If no process answers,
    the state directory's lock is held meanwhile; raises `Unavailable` where a run holds it."""
    path = socket_path(state_dir / "run", "control")
    if path.exists():
        try:
            with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
                answer = client.call("settings", changefeed=changefeed)
                return tuple(SettingsVersion.from_json(version) for version in answer["versions"])
        except Unavailable:
            pass
    with REAL_FILES.lock(state_dir / "lock"):
        return recorded_versions(state_dir, changefeed)


def dispatcher_facts(state_dir: Path, changefeed: str) -> tuple[DispatcherFacts, ...]:
    """What is recorded of each table of the changefeed. As `settings_versions`."""
    path = socket_path(state_dir / "run", "control")
    if path.exists():
        with contextlib.suppress(Unavailable), connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            found = client.call("dispatchers", changefeed=changefeed)["facts"]
            return tuple(DispatcherFacts.from_json(value) for value in found.values())
    with REAL_FILES.lock(state_dir / "lock"):
        return tuple(recorded_facts(state_dir, changefeed).values())


def delivered_through(state_dir: Path, changefeed: str, reader: LogReader) -> Position:
    """The cursor's mark-delete position: everything at or before it is at the sink. Where there is no cursor, the position before
    the log's first entry.

    If no process answers, the cursor's records are read, without owning it: a look changes nothing, keeps no run from starting,
    and makes no cursor for a sink that never ran, which would hold the log from then on.
    """
    path = socket_path(state_dir / "run", "control")
    if path.exists():
        with contextlib.suppress(Unavailable), connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            return Position.parse(client.call("checkpoint", changefeed=changefeed)["mark_delete"])
    with closing(CursorTable(reader, state_dir / "cursors")) as table:
        found = table.positions().get(changefeed)
    return found or Position(reader.first.ledger_id, reader.first.entry_id - 1)
