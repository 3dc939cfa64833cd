"""How long the server still keeps what capture needs: the time until it purges the binlog file that a restart would read.

A server purges a file once nothing was written to it for its time of expiry. When that was, it does not say; a lower bound is
known: the file was begun then (its own words, in the position), and while it was the newest one it was being written. So
what is shown is never too much. The file that the server writes now has all of its time left.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

from penstock.clock import Clock
from penstock.errors import PenstockError
from penstock.sources.mysql.binlog_files import BinlogFiles, ask_binlog_files
from penstock.sources.position import files_between
from penstock.sources.settings import ServerSettings, SourceSettings
from penstock.supervisor.status import HeadroomStatus

EVERY_SECONDS = 20.0
LOW_SECONDS = 3600.0  # with less than this left in a file that the server does not write any more, somebody should act

_logger = logging.getLogger(__name__)


class BinlogHeadroom:
    """`ask` is called on a thread of its own; a server that does not answer holds up nobody, and time goes on."""

    def __init__(self, ask: Callable[[], BinlogFiles], clock: Clock, every_seconds: float = EVERY_SECONDS) -> None:
        self._ask = ask
        self._clock = clock
        self._every = every_seconds
        self._known: tuple[BinlogFiles, int] | None = None  # with our own clock at the answer
        self._newest_ms: dict[str, int] = {}  # file → when it was last seen to be the newest one, by the server's clock
        self._stop = threading.Event()

    @classmethod
    def of(cls, source: dict[str, Any], clock: Clock) -> BinlogHeadroom | None:
        """None for a source that is no server: nobody purges what it needs."""
        if source.get("type") not in ("mariadb", "mysql"):
            return None
        settings: Any = TypeAdapter(SourceSettings).validate_python(source)
        assert isinstance(settings, ServerSettings)
        return cls(lambda: ask_binlog_files(settings), clock)

    def start(self) -> None:
        threading.Thread(target=self._watch, name="binlog-headroom", daemon=True).start()

    def close(self) -> None:
        self._stop.set()

    @property
    def server(self) -> str:
        """`MariaDB 10.11.6`; empty while it has not answered."""
        return self._known[0].server if self._known is not None else ""

    def look(self) -> None:
        """Asks the server once."""
        found = self._ask()
        if found.names:
            self._newest_ms = {name: ms for name, ms in self._newest_ms.items() if name in found.names}
            self._newest_ms[found.names[-1]] = found.server_ms
        self._known = (found, self._clock.wall_ms())

    def of_position(self, position: dict[str, Any] | None) -> HeadroomStatus | None:
        """For the saved position; None while the server or the file is not known, or where it purges by size, too."""
        file = (position or {}).get("file")
        if self._known is None or not file:
            return None
        files, asked_ms = self._known
        if not files.names:
            return None
        here = HeadroomStatus(file=str(file), oldest=files.names[0], expire_seconds=files.expire_seconds)
        # Or begun since the server was asked.
        newest = file == files.names[-1] or (files_between(files.names[-1], str(file)) or 0) > 0
        if file not in files.names and not newest:
            return here.model_copy(update={"seconds": 0.0, "low": True})
        if files.by_size:
            return None  # it depends on how much is written
        if files.expire_seconds is None:
            return here
        if newest:
            return here.model_copy(update={"seconds": files.expire_seconds})
        written_ms = max(int((position or {}).get("begun") or 0) * 1000, self._newest_ms.get(str(file), 0))
        if not written_ms:
            return here
        now_ms = files.server_ms + self._clock.wall_ms() - asked_ms
        left = max(0.0, files.expire_seconds - (now_ms - written_ms) / 1000)
        return here.model_copy(update={"seconds": left, "low": left < LOW_SECONDS})

    def _watch(self) -> None:
        while True:
            try:
                self.look()
            except PenstockError as error:  # capture says what is wrong with the source
                _logger.debug("the server does not say which binlog files it has: %s", error)
            if self._stop.wait(self._every):
                return
