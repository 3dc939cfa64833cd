"""Reloading the configuration of a running flow: asked of the run, which reads its own file again."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from penstock.errors import Unavailable
from penstock.operations.config.model import Places
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 60.0


class Reloaded(BaseModel):
    """Sinks that were added and removed. `restart`: sections that changed and count from the next `penstock run` on."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()


def reload(places: Places) -> Reloaded:
    """Raises `Unavailable` if no run answers, and what is wrong with the configuration; then nothing is changed."""
    path = socket_path(places.state_dir / "run", "control")
    if not path.exists():
        raise Unavailable(f"no penstock run owns {places.state_dir}", hint="penstock run reads the configuration")
    with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
        return Reloaded.model_validate(client.call("reload"))
