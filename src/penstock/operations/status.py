"""How the flow is doing: asked of the running process, or read from the disk if none runs."""

from __future__ import annotations

from pydantic import BaseModel

from penstock.errors import Unavailable
from penstock.operations.config.model import Config
from penstock.supervisor.status import RunStatus
from penstock.wire import connect, socket_path

_HEALTHY, _DEGRADED, _STOPPED = 0, 1, 2
_TIMEOUT_SECONDS = 5.0


class StoppedFeed(BaseModel):
    """What a changefeed has durably delivered."""

    name: str
    mark_delete: str | None = None


class StatusReport(BaseModel):
    """`run` is None if no process runs; `stopped` then holds what each changefeed has delivered."""

    exit_code: int
    run: RunStatus | None = None
    stopped: tuple[StoppedFeed, ...] = ()
    note: str = ""


def read_status(config: Config) -> StatusReport:
    """The status of the flow. Starts nothing and takes ownership of nothing."""
    path = socket_path(config.state_dir / "run", "control")
    try:
        if not path.exists():
            raise Unavailable("no run")
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            run = RunStatus.model_validate(client.call("status"))
    except Unavailable:
        feeds = tuple(StoppedFeed(name=name, mark_delete=_mark_delete(config, name)) for name in config.sinks)
        return StatusReport(exit_code=_STOPPED, stopped=feeds, note=f"no penstock run owns {config.state_dir}")
    unwell = any(f.state == "recovering" for f in run.changefeeds) or any(
        c.state in ("failed", "waiting") for c in run.children
    )
    return StatusReport(exit_code=_DEGRADED if unwell else _HEALTHY, run=run)


def _mark_delete(config: Config, name: str) -> str | None:
    """None if nothing was captured yet, or a run is just starting."""
    from penstock.log import LogReader
    from penstock.operations.delivered import delivered_through

    if not (config.state_dir / "log").exists():
        return None
    try:
        return str(delivered_through(config.state_dir, name, LogReader.open(config.state_dir / "log")))
    except Unavailable:
        return None
