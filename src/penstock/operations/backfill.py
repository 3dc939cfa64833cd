"""`penstock backfill`: rows of tables are loaded again, beside the stream. Asked of the run, whose capture makes it durable
before it answers; from then on it goes on by itself, over kills and restarts."""

from __future__ import annotations

import time
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from penstock.capture.load.request import REQUEST, Backfill
from penstock.errors import BadInput, Unavailable
from penstock.operations.config.model import Places
from penstock.operations.status import ask_run
from penstock.supervisor.requests import ANSWER_SECONDS_MAX
from penstock.supervisor.status import LoadStatus
from penstock.wire import connect, socket_path

_POLL_SECONDS = 0.5
_SHOW_SECONDS = 5.0  # between two lines on how far it is


class BegunTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str
    estimate: int  # of its rows, by the server


class RefusedTable(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    table: str
    reason: str


class BegunBackfill(BaseModel):
    """What is being loaded now. `refused`: tables that a pattern took, and that are not loaded."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tables: tuple[BegunTable, ...]
    refused: tuple[RefusedTable, ...] = ()
    begun_ms: int


def begin_backfill(places: Places, tables: list[str], *, where: str = "") -> BegunBackfill:
    """Durable when it returns. Raises `BadInput` where nothing was begun for what was asked, `Unavailable` if no run answers."""
    for name in tables:
        if "." not in name.strip("."):
            raise BadInput(f"{name!r} names no table", hint=f"write schema.table, for example {name}.*")
    path = socket_path(places.state_dir / "run", "control")
    if not path.exists():
        raise Unavailable(
            f"no penstock run owns {places.state_dir}",
            hint="a backfill is loaded by a running flow: start it (penstock run), then ask again",
        )
    asked = Backfill(tuple(tables), where)
    with connect(path, timeout_seconds=ANSWER_SECONDS_MAX + 10) as client:
        return BegunBackfill.model_validate(client.call(REQUEST, **asked.to_json()))


def wait_for_load(places: Places, begun_ms: int, show: Callable[[LoadStatus], None]) -> LoadStatus:
    """Returns once nothing is being loaded, of what was begun then and of what was under way. Raises `Unavailable` where the
    run ends before that: the next one goes on with it."""
    shown = 0.0
    while True:
        run = ask_run(places.state_dir)
        if run is None:
            raise Unavailable(
                "the run does not answer any more", hint="the backfill goes on with the next `penstock run`"
            )
        load = run.source.load
        if load is not None and load.begun_ms >= begun_ms:
            if time.monotonic() - shown >= _SHOW_SECONDS:
                shown = time.monotonic()
                show(load)
            if load.done == load.tables:
                return load
        time.sleep(_POLL_SECONDS)
