"""The data source with a task that fails once after it staged everything, where a test left a file that asks for it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.spark.source import PenstockSource, PenstockStreamReader


class FailingSource(PenstockSource):
    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        return FailingReader(self.options)


class FailingReader(PenstockStreamReader):
    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        rows = list(super().read(partition))
        for how in ("raise", "kill", "raise-always"):
            wish = Path(self._job.state_dir) / f"fail-{how}"
            if wish.exists():
                if how != "raise-always":
                    wish.rename(wish.with_suffix(".done"))
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise RuntimeError("a test wanted this task to fail")
        yield from rows
