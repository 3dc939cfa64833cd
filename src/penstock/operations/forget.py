"""`penstock forget SINK`: a sink that is in the configuration no more gives up its place in the log."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pydantic import BaseModel

from penstock.changefeed.forgetting import forget_changefeed, left_feeds
from penstock.errors import BadInput, Unavailable
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.operations.config.model import Places
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 60.0


class LeftSink(BaseModel):
    """A sink that is not in the configuration, and still has a place in the log: what comes after it is kept for it."""

    name: str
    mark_delete: str | None = None
    entries: int = 0


class Forgotten(BaseModel):
    """`done`: it is forgotten; else this is what would be."""

    sink: LeftSink
    done: bool


def left_sinks(places: Places) -> tuple[LeftSink, ...]:
    """Takes ownership of nothing; none where there is no log."""
    if not (places.state_dir / "log").is_dir():
        return ()
    try:
        with closing(LogReader.open(places.state_dir / "log")) as reader:
            found = left_feeds(places.state_dir, places.sinks, reader)
    except Unavailable:
        return ()
    return tuple(
        LeftSink(name=one.name, mark_delete=str(one.mark_delete) if one.mark_delete else None, entries=one.entries)
        for one in found
    )


def forget(places: Places, name: str, *, yes: bool) -> Forgotten:
    """Forgets the sink, of a flow that runs or not; without `yes` only says what that means. Raises `BadInput` for one that is
    configured, or that there is not."""
    if name in places.sinks:
        raise BadInput(
            f"{name} is in the configuration",
            hint="take it out first, then penstock reload if a flow runs; penstock pause lets it rest",
        )
    sink = next((one for one in left_sinks(places) if one.name == name), None)
    if sink is None:
        raise BadInput(f"there is no sink {name!r} that has a place in the log of {places.state_dir}")
    if yes and not _asked_run(places.state_dir, name):
        with REAL_FILES.lock(places.state_dir / "lock"), closing(LogReader.open(places.state_dir / "log")) as reader:
            forget_changefeed(places.state_dir, name, reader)
    return Forgotten(sink=sink, done=yes)


def _asked_run(state_dir: Path, name: str) -> bool:
    """Whether a run that owns the state directory did it. Raises what it refuses with."""
    path = socket_path(state_dir / "run", "control")
    if not path.exists():
        return False
    try:
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            client.call("status")
    except Unavailable:
        return False  # a killed run left its socket behind, or it is about to end; the lock decides
    with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
        client.call("forget", changefeed=name)
    return True
