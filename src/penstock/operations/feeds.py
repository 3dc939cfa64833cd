"""What the running flow says of its changefeeds, table by table: for `penstock lag`, `errors` and `dispatchers`."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from penstock.errors import Unavailable
from penstock.operations.config.model import Places
from penstock.operations.status import ask_run, check_sink, of_sink
from penstock.supervisor.status import RunStatus, table_state
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 5.0


class DispatcherState(BaseModel):
    """One table on its way to one sink, in the delivery process that runs now; counts are of this process."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    sink: str
    dispatcher: str
    table: str
    state: str
    epoch: int
    progress: str | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    ddls: int = 0
    last_write_ms: int | None = None
    last_error: str | None = None
    attempts: int = 0
    held_rows: int = 0  # that were read while it was left out, and stay in the log until it is replayed
    replayed_to: str | None = None  # while it is read again beside the others: where that has come to
    published_end: str | None = None  # where the others have come to


class FlowError(BaseModel):
    """One thing that is wrong now, where it is, and what to do, where a command does it."""

    model_config = ConfigDict(frozen=True)

    sink: str | None  # None: of the whole flow
    where: str
    message: str
    attempts: int = 0
    command: str = ""


def read_run(places: Places, sink: str | None) -> RunStatus | None:
    """The running flow, with the changefeeds of one sink or of all. None if none runs."""
    check_sink(places, sink)
    run = ask_run(places.state_dir)
    return None if run is None else of_sink(run, sink)


def read_dispatchers(state_dir: Path, sink: str | None, table: str | None = None) -> tuple[DispatcherState, ...] | None:
    """The dispatchers of a sink, or of all; of one table (`SCHEMA.TABLE`), or of all. None if delivery does not answer."""
    path = socket_path(state_dir / "run", "delivery")
    if not path.exists():
        return None
    try:
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            answer = client.call("status")
    except Unavailable:
        return None
    found = [
        DispatcherState.model_validate(
            {
                **each,
                "sink": name,
                "dispatcher": identity,
                "table": f"{each['schema']}.{each['table']}",
                "published_end": feed.get("published_end"),
            }
        )
        for name, feed in answer["changefeeds"].items()
        for identity, each in feed["dispatchers"].items()
    ]
    wanted = (one for one in found if sink in (None, one.sink) and table in (None, one.table))
    return tuple(sorted(wanted, key=lambda one: (one.sink, one.table)))


def errors_of(run: RunStatus, dispatchers: tuple[DispatcherState, ...], sink: str | None) -> tuple[FlowError, ...]:
    """Everything that is wrong now: the source, the processes, parked tables, tables that a sink refuses."""
    found: list[FlowError] = []
    if run.source.problem:
        found.append(FlowError(sink=None, where="source", message=run.source.problem))
    for child in run.children:
        if child.note and child.name != "capture":
            found.append(FlowError(sink=None, where=child.name, message=child.note, attempts=child.restarts))
    for feed in run.changefeeds:
        if feed.state == "failed" and sink in (None, feed.name):
            command = f"penstock resume {feed.name}"
            found.append(FlowError(sink=feed.name, where="stands still", message=feed.note, command=command))
    for parked in run.parked:
        message = f"parked: {parked.reason}"
        found.append(FlowError(sink=None, where=parked.table, message=message, command=parked.command))
    for one in dispatchers:
        if one.last_error and sink in (None, one.sink):
            message = f"{table_state(one.state, one.attempts)}: {one.last_error}"
            found.append(FlowError(sink=one.sink, where=one.table, message=message, attempts=one.attempts))
    driver_has_all = any(child.name == "driver" and child.note for child in run.children)
    for feed in run.changefeeds:  # what the driver tries again for one sink is in its note alone
        message = feed.note.removeprefix("driver ")
        here = feed.state == "recovering" and sink in (None, feed.name)
        if here and message not in {"", feed.note} and not driver_has_all:
            found.append(FlowError(sink=feed.name, where="driver", message=message))
    return tuple(found)
