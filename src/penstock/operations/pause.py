"""Pausing a changefeed, or one table of it, and letting it go on: asked of the run, which makes it durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import Unavailable
from penstock.operations.config.model import Places
from penstock.operations.status import check_sink
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Pause:
    """`changed`: it was not so before. `since_ms`: when the pause began. `again`: it had failed, or tables had stopped at it,
    and that is tried again. `table`: of that one alone."""

    sink: str
    paused: bool
    changed: bool
    since_ms: int | None
    again: bool = False
    table: str | None = None


def set_paused(places: Places, sink: str, *, paused: bool, table: str | None = None) -> Pause:
    """Pauses the sink's changefeed, or one table of it (`SCHEMA.TABLE`, by its name at the sink), or lets it go on. Raises
    `Unavailable` if no run answers."""
    check_sink(places, sink)
    path = socket_path(places.state_dir / "run", "control")
    if not path.exists():
        hint = "a stopped flow delivers nothing anyway" if paused else "start it (penstock run), then ask again"
        raise Unavailable(f"no penstock run owns {places.state_dir}", hint=hint)
    with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
        answer: dict[str, Any] = client.call("pause", changefeed=sink, paused=paused, table=table)
    return Pause(sink, paused, bool(answer["changed"]), answer.get("since_ms"), bool(answer.get("again")), table)
