"""`python -m penstock.capture`: the capture process. How it gets its settings, speaks and ends: `penstock.process`.

Settings: `{"state_dir", "source": {...}, "log": {...}, "state": {...}, "limits": {...}, "until": null | "now"}`. Events: `ready`, `progress`,
`retrying`, `caught-up` (with `until: now`; then it ends), `answer`, `error`. On a stop, the transactions that are complete
are flushed and the log is closed. Exit codes: 2 settings, 3 the source or the log, 75 the source does not answer: try
again later. Requests: `resume` (resumption.py), `backfill` (load/beginning.py).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from penstock.capture.log_config import LimitsConfig, LogConfig
from penstock.capture.state_config import StateConfig
from penstock.errors import BadInput, PenstockError
from penstock.log import configure_cache
from penstock.process import (
    EXIT_CONFIGURATION,
    EXIT_OK,
    EXIT_SOURCE,
    EXIT_TRY_AGAIN,
    ChildProcess,
    Requests,
    importing,
    parse_settings,
)
from penstock.sources.settings import BinlogFilesSettings, DemoSettings, ServerSettings, SourceSettings
from penstock.sources.source import Source

_IDLE_SECONDS = 0.2  # between two looks for requests, once there is nothing more to read


class CaptureSettings(BaseModel):
    """The settings on standard input."""

    model_config = ConfigDict(extra="forbid")

    state_dir: Path
    source: SourceSettings
    log: LogConfig = LogConfig()
    state: StateConfig = StateConfig()
    limits: LimitsConfig = LimitsConfig()
    until: Literal["now"] | None = None


def make_source(settings: CaptureSettings) -> Source:
    """The source of the settings; nothing is connected yet."""
    source = settings.source
    if isinstance(source, DemoSettings):
        from penstock.sources.demo.source import DemoSource

        return DemoSource(source)
    if isinstance(source, BinlogFilesSettings):
        from penstock.sources.binlog_files import BinlogFilesSource

        return BinlogFilesSource(source)
    from penstock.sources.mysql.source import ServerSource

    return ServerSource(source, settings.state_dir)


def main() -> int:
    child = ChildProcess("capture")
    child.end_with_threads()
    try:
        settings = _settings(child.read_settings())
    except PenstockError as error:
        child.say_error(error)
        return EXIT_CONFIGURATION
    child.report_metrics()
    try:
        _capture(settings, child)
    except PenstockError as error:
        child.say_error(error)
        return EXIT_TRY_AGAIN if error.transient else EXIT_SOURCE
    return EXIT_OK


def _capture(settings: CaptureSettings, child: ChildProcess) -> None:
    with importing():  # late: bad settings are reported at once
        from penstock.capture.loop import Capture, open_log
        from penstock.capture.room import Room

    if isinstance(settings.source, ServerSettings) and (exposure := settings.source.exposure()):
        logging.getLogger(__name__).warning(exposure)
    source = make_source(settings)
    cache = settings.log.cache
    configure_cache(cache.size, cache.in_flight)
    limits = settings.limits
    log = open_log(settings.state_dir, settings.log.settings(limits.log_disk))
    try:
        capture = Capture(
            log,
            source,
            tables=settings.source.tables,
            snapshot=settings.source.snapshot if isinstance(settings.source, ServerSettings) else None,
            scope=settings.source.load_scope if isinstance(settings.source, ServerSettings) else None,
            stop=child.stop,
            report=child.say,
            requests=Requests(child.requests, child.say),
            room=Room(
                log,
                settings.state_dir / "log",
                log_bytes_max=limits.log_disk,
                free_bytes_min=limits.disk_free,
            ),
            state_settings=settings.state.settings(),
        )
        reached = capture.run(until_now=settings.until == "now")
        if reached and settings.until is None:
            # The end of a source that has one: ending now would only get this process started again.
            while not child.stop.wait(_IDLE_SECONDS):
                capture.answer()
    finally:
        source.close()
        log.close()


def _settings(document: dict[str, Any]) -> CaptureSettings:
    settings = parse_settings(CaptureSettings, document, "capture")
    if isinstance(settings.source, ServerSettings):
        try:
            settings.source.secret()  # from here on no line of this process has it
        except OSError as error:
            raise BadInput(f"source.password_file: {error}") from None
    return settings
