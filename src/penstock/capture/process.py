"""`python -m penstock.capture`: the capture process.

Standard input: one line of JSON, `{"state_dir", "source": {...}, "log": {...}, "until": null | "now"}`; then it stays open, and its end is
the wish to stop, as SIGTERM is: what is whole is flushed, the log closed, exit 0. Standard output: JSON lines, `ready`,
`progress`, `retrying`, `caught-up` (with `until: now`, then exit 0), `error`. Exit codes: 2 settings, 3 the source or the
log, 75 the source does not answer: try again later. It dies with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from penstock.capture.log_config import LogConfig
from penstock.errors import BadInput, PenstockError
from penstock.observe.logging import configure, hide
from penstock.sources.settings import BinlogFilesSource, DemoSettings, MariadbSource, SourceSettings
from penstock.sources.source import Source

EXIT_OK = 0
EXIT_SETTINGS = 2
EXIT_SOURCE = 3
EXIT_TRY_AGAIN = 75
_PR_SET_PDEATHSIG = 1


class CaptureSettings(BaseModel):
    """What standard input says."""

    model_config = ConfigDict(extra="forbid")

    state_dir: Path
    source: SourceSettings
    log: LogConfig = LogConfig()
    until: Literal["now"] | None = None


def make_source(settings: CaptureSettings) -> Source:
    """The source of the settings; nothing is connected yet."""
    source = settings.source
    if isinstance(source, DemoSettings):
        from penstock.sources.demo.source import DemoSource

        return DemoSource(source)
    if isinstance(source, BinlogFilesSource):
        from penstock.sources.binlog_files import BinlogFilesSource as Files

        return Files(source)
    if isinstance(source, MariadbSource):
        from penstock.sources.mysql.source import MariadbServer

        return MariadbServer(source, settings.state_dir)
    raise BadInput(f"source type {source.type} is not in this version")


def main() -> int:
    _die_with_parent()
    configure("capture")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides how we end
    try:
        settings = _settings(_read_line(sys.stdin.fileno()))
    except PenstockError as error:
        return _fail(error, EXIT_SETTINGS)
    threading.Thread(target=_wait_for_end, args=(sys.stdin.fileno(), stop), name="stdin", daemon=True).start()
    try:
        return _capture(settings, stop)
    except PenstockError as error:
        return _fail(error, EXIT_TRY_AGAIN if error.transient else EXIT_SOURCE)


def _capture(settings: CaptureSettings, stop: threading.Event) -> int:
    from penstock.capture.loop import Capture, open_log  # late: bad settings are told at once

    source = make_source(settings)
    log = open_log(settings.state_dir, settings.log.settings())
    try:
        capture = Capture(log, source, tables=settings.source.tables, stop=stop, report=_say)
        reached = capture.run(until_now=settings.until == "now")
        if reached and settings.until is None:
            stop.wait()  # the source has an end and we are there: nothing more to do, and no reason to be restarted
    finally:
        source.close()
        log.close()
    return EXIT_OK


def _settings(line: bytes) -> CaptureSettings:
    try:
        settings = CaptureSettings.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"capture's settings: {where}: {first['msg']}".removesuffix(": ")) from None
    if isinstance(settings.source, MariadbSource):
        try:
            hide(settings.source.secret())
        except OSError as error:
            raise BadInput(f"source.password_file: {error}") from None
    return settings


def _read_line(descriptor: int) -> bytes:
    """One line, read past Python's own buffer, which would hide the end of the input from `_wait_for_end`."""
    line = bytearray()
    while not line.endswith(b"\n"):
        more = os.read(descriptor, 1 << 16)
        if not more:
            break
        line += more
    return bytes(line)


def _wait_for_end(descriptor: int, stop: threading.Event) -> None:
    while os.read(descriptor, 4096):
        pass
    stop.set()


def _die_with_parent() -> None:
    """Asks the kernel to kill us with our parent. Nothing is lost by it: the log is safe at every moment."""
    parent = os.getppid()
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(EXIT_SOURCE)


def _fail(error: PenstockError, code: int) -> int:
    _say({"event": "error", "kind": type(error).__name__, "message": error.message, "hint": error.hint})
    return code


def _say(event: dict[str, Any]) -> None:
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # nobody listens any more: the log is what counts
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
