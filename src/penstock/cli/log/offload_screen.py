"""Displays how far an offload is: one changing line on a terminal, JSON lines on request, nothing in a file."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.live import Live
from rich.text import Text

from penstock.cli.formatting import human_bytes
from penstock.cli.output import console, print_json

if TYPE_CHECKING:
    from penstock.log import OffloadProgress


class OffloadScreen:
    """Context manager that displays offload progress."""

    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self._live = Live(console=console, transient=True) if not as_json and console.is_terminal else None

    def __enter__(self) -> OffloadScreen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def update(self, now: OffloadProgress) -> None:
        if self._json:
            print_json({"event": "progress", **now._asdict()})
        elif self._live:
            size = f"{human_bytes(now.bytes)} of {human_bytes(now.bytes_total)}"
            self._live.update(Text(f"  ledger {now.ledger_id} ({now.ledger} of {now.ledgers}): {size}"))
