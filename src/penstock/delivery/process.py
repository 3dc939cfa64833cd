"""`python -m penstock.delivery`: the delivery process.

Standard input: one JSON document (`DeliverySettings`), then it stays open; when it closes, delivery drains and ends, as it
does on SIGTERM. Standard output: one line, `{"event": "ready", …}` or `{"event": "error", "kind", "message", "hint"}`.
When the parent dies delivery ends at once, without draining: the keeper died with it, and the log has everything.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from penstock.delivery.keeper_client import KeeperClient
from penstock.delivery.server import DeliveryServer
from penstock.delivery.settings import DeliverySettings
from penstock.errors import BadInput, PenstockError
from penstock.files import Buffer
from penstock.log import LogReader
from penstock.observe.logging import configure
from penstock.schema.schema_file import schema_file
from penstock.wire import socket_path

EXIT_OK = 0
EXIT_CONFIGURATION = 2
EXIT_SINK = 4
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_PARENT_DIED = signal.SIGUSR2


def read_document(stream: TextIO) -> dict[str, Any]:
    """The first JSON document of a stream that stays open: lines are read until they are whole."""
    text = ""
    for line in stream:
        text += line
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
        break
    raise BadInput("the settings on standard input are not one JSON object")


def end_with_parent() -> None:
    """The kernel tells when the thread that started us ends; only where the whole parent is gone we end, at once.

    A parent that asked the kernel for something else before it became us knows better.
    """
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    asked = ctypes.c_int(0)
    if libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(asked), 0, 0, 0) == 0 and asked.value:
        return

    def parent_died(_signal: int, _frame: object) -> None:
        if os.getppid() != parent:
            os._exit(EXIT_SINK)

    signal.signal(_PARENT_DIED, parent_died)
    libc.prctl(_PR_SET_PDEATHSIG, int(_PARENT_DIED), 0, 0, 0)
    parent_died(0, None)  # it may have died before prctl


def log_uuid_reader(settings: DeliverySettings) -> Callable[[], str]:
    """The log's UUID, asked when the first run begins: the log is surely there by then."""

    def read() -> str:
        if settings.log_uuid is not None:
            return settings.log_uuid
        reader = LogReader.open(settings.state_dir / "log")
        try:
            return str(reader.uuid)
        finally:
            reader.close()

    return read


class LateFormat:
    """A file format that is imported with its first file: its kernels take longer to load than all the rest."""

    def __init__(self, name: str) -> None:
        self._name = name

    def assemble(self, payloads: Sequence[Buffer]) -> Buffer:
        from penstock.encode import FORMATS

        return FORMATS[self._name].assemble(payloads)


def open_server(settings: DeliverySettings) -> DeliveryServer:
    keeper = KeeperClient(socket_path(settings.state_dir / "run", "control"))
    return DeliveryServer(
        settings,
        keeper=keeper,
        formats={sink.format: LateFormat(sink.format) for sink in settings.changefeeds.values()},
        schema_file=schema_file,
        log_uuid=log_uuid_reader(settings),
    )


def parse_settings(document: dict[str, Any]) -> DeliverySettings:
    try:
        return DeliverySettings.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"delivery's settings: {where}: {first['msg']}") from error


def main(serve: Callable[[DeliverySettings], DeliveryServer] = open_server) -> int:
    end_with_parent()
    configure("delivery")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides how we end
    try:
        settings = parse_settings(read_document(sys.stdin))
        server = serve(settings)
    except PenstockError as error:
        _say(event="error", kind=type(error).__name__, message=error.message, hint=error.hint)
        return EXIT_CONFIGURATION if isinstance(error, BadInput) else EXIT_SINK
    _say(event="ready", incarnation=server.incarnation, socket=str(server.path), pid=os.getpid())
    threading.Thread(target=importlib.import_module, args=("penstock.encode",), name="warm", daemon=True).start()
    threading.Thread(target=_wait_for_end, args=(sys.stdin.fileno(), stop), name="stdin", daemon=True).start()
    stop.wait()
    drained = server.close(settings.drain_seconds)
    _say(event="stopped", drained=drained)
    return EXIT_OK


def _wait_for_end(descriptor: int, stop: threading.Event) -> None:
    while os.read(descriptor, 4096):  # past the buffered stream, whose lock would disturb the end of the interpreter
        pass
    stop.set()


def _say(**event: Any) -> None:
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # nobody listens any more; our standard output is not a sink
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
