"""`penstock run --adopt NAME`: a sink takes over a prefix that is not its own, or that has lost its owner."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.clock import SYSTEM_CLOCK
from penstock.delivery.storage.owner import adopt
from penstock.delivery.storage.place import open_place
from penstock.encode.settings import identity
from penstock.errors import BadInput
from penstock.files import RealFiles
from penstock.files.private import users_umask
from penstock.log import LogReader
from penstock.operations.config.model import Config


def adopt_sinks(config: Config, names: Sequence[str]) -> list[str]:
    """The sinks among `names` that were not the owners of their prefixes, and are now. Before the run starts."""
    for name in names:
        if name not in config.sinks:
            raise BadInput(f"there is no sink {name!r} to adopt files for", hint=f"sinks: {', '.join(config.sinks)}")
    if not names:
        return []  # without a look at a log that may be half made
    uuid = _log_uuid(config)
    taken = []
    for name in names:
        sink = config.sinks[name]
        place = open_place(sink.url, RealFiles(shared_umask=users_umask()))
        format_name = identity(sink.format, sink.format_options)
        if adopt(place, SYSTEM_CLOCK, changefeed=name, log_uuid=uuid, format_name=format_name):
            taken.append(name)
    return taken


def _log_uuid(config: Config) -> str | None:
    """None where there is no log yet."""
    directory = config.state_dir / "log"
    if not directory.is_dir():
        return None
    reader = LogReader.open(directory)
    try:
        return str(reader.uuid)
    finally:
        reader.close()
