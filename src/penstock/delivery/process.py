"""`python -m penstock.delivery`: the delivery process. How it gets its settings, speaks and ends: `penstock.process`.

Settings: `DeliverySettings`. Requests: `add` with a changefeed and its settings, and `remove` with a changefeed, which
answers once what was published of it is at the sink, or `REMOVE_SECONDS_MAX` are over. Events: `ready`, `error`, `stopped`. On a stop, delivery drains: what was published goes
to the sinks, for at most `drain_seconds`. When the parent dies, it ends without draining: the keeper died with the
parent, and the log has everything. Exit codes: 2 settings, 4 anything else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from penstock.delivery.keeper_client import KeeperClient
from penstock.delivery.server import DeliveryServer
from penstock.delivery.settings import ChangefeedSettings, DeliverySettings, is_local, local_directory
from penstock.encode import open_assembler
from penstock.errors import BadInput, PenstockError
from penstock.files import RealFiles
from penstock.files.private import check_not_planted, users_umask
from penstock.log import LogReader
from penstock.process import EXIT_CONFIGURATION, EXIT_OK, EXIT_SINK, ChildProcess, Event, Handler, parse_settings
from penstock.schema.schema_file import schema_file
from penstock.wire import socket_path

REMOVE_SECONDS_MAX = 10.0  # for what is in the spool of a changefeed that is removed


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


class Members:
    """What the run asks about changefeeds that come and go."""

    def __init__(self, server: DeliveryServer) -> None:
        self._server = server

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {"add": self._add, "remove": self._remove}

    def _add(self, request: dict[str, Any]) -> dict[str, Any]:
        settings = request.get("settings")
        sink = parse_settings(ChangefeedSettings, settings if isinstance(settings, dict) else {}, "delivery")
        _check_sink(sink)
        self._server.add(_name(request), sink, open_assembler(sink.format, sink.format_options))
        return {}

    def _remove(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"drained": self._server.remove(_name(request), REMOVE_SECONDS_MAX)}


def _name(request: dict[str, Any]) -> str:
    name = request.get("changefeed")
    if not isinstance(name, str) or not name:
        raise BadInput(f"the request {request.get('op')!r} names no changefeed")
    return name


def _check_sink(sink: ChangefeedSettings) -> None:
    if is_local(sink.url):
        check_not_planted(local_directory(sink.url))


def open_server(settings: DeliverySettings) -> DeliveryServer:
    """Raises `BadInput` for a sink that just anybody could have made, or could replace."""
    for sink in settings.changefeeds.values():
        _check_sink(sink)
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
    child.answer_until_stop(Members(server).handlers)
    drained = server.close(settings.drain_seconds)
    child.say({"event": Event.STOPPED, "drained": drained, "stage_seconds": {"write": server.write_seconds}})
    return EXIT_OK
