"""`python -m penstock.delivery`: the delivery process. How it gets its settings, speaks and ends: `penstock.process`.

Settings: `DeliverySettings`. Events: `ready`, `error`, `stopped`. On a stop, delivery drains: what was published goes
to the sinks, for at most `drain_seconds`. When the parent dies, it ends without draining: the keeper died with the
parent, and the log has everything. Exit codes: 2 settings, 4 anything else.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from penstock.delivery.keeper_client import KeeperClient
from penstock.delivery.server import DeliveryServer
from penstock.delivery.settings import DeliverySettings, is_local, local_directory
from penstock.encode import open_assembler
from penstock.errors import BadInput, PenstockError
from penstock.files import RealFiles
from penstock.files.private import check_not_planted, users_umask
from penstock.log import LogReader
from penstock.process import EXIT_CONFIGURATION, EXIT_OK, EXIT_SINK, ChildProcess, Event, parse_settings
from penstock.schema.schema_file import schema_file
from penstock.wire import socket_path


def log_uuid_reader(settings: DeliverySettings) -> Callable[[], str]:
    """Reads the log's UUID. Called when the first run begins: by then the log exists for sure."""

    def read() -> str:
        if settings.log_uuid is not None:
            return settings.log_uuid
        reader = LogReader.open(settings.state_dir / "log")
        try:
            return str(reader.uuid)
        finally:
            reader.close()

    return read


def open_server(settings: DeliverySettings) -> DeliveryServer:
    """Raises `BadInput` for a sink that just anybody could have made, or could replace."""
    for sink in settings.changefeeds.values():
        if is_local(sink.url):
            check_not_planted(local_directory(sink.url))
    keeper = KeeperClient(socket_path(settings.state_dir / "run", "control"))
    return DeliveryServer(
        settings,
        keeper=keeper,
        assemblers={
            name: open_assembler(sink.format, sink.format_options) for name, sink in settings.changefeeds.items()
        },
        schema_file=schema_file,
        log_uuid=log_uuid_reader(settings),
        files=RealFiles(shared_umask=users_umask()),  # a sink is there to be read
    )


def main() -> int:
    child = ChildProcess("delivery")
    child.end_with_threads()
    try:
        settings = parse_settings(DeliverySettings, child.read_settings(), "delivery")
        server = open_server(settings)
    except PenstockError as error:
        child.say_error(error)
        return EXIT_CONFIGURATION if isinstance(error, BadInput) else EXIT_SINK
    child.say({"event": Event.READY, "incarnation": server.incarnation, "socket": str(server.path), "pid": os.getpid()})
    child.stop.wait()
    drained = server.close(settings.drain_seconds)
    child.say({"event": Event.STOPPED, "drained": drained})
    return EXIT_OK
