"""The demonstration: a small shop's changes go through every package, one process is killed on the way, all is
verified.

It works in one directory, and refuses one that holds files it did not make.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from penstock.delivery.storage.place import open_place
from penstock.errors import BadInput
from penstock.files import REAL_FILES
from penstock.files.private import check_private_directory, make_private_directory, write_private
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config, run_settings
from penstock.operations.verify.sink_files import DataDirectory, data_directories
from penstock.supervisor.status import RunStatus, RunSummary
from penstock.supervisor.supervisor import run

_MARKER = ".penstock-demo"
_SINK = "lake"
_KILL_AFTER_SHARE = 0.4  # of the rows: late enough that files exist, early enough that more follow after the restart


@dataclass(slots=True)
class Demo:
    """One run of the demonstration. `say` prints a line that stays on the screen: a template and its values."""

    directory: Path
    config: Config
    changes: int
    say: Callable[..., None]
    _started: float = field(default_factory=time.monotonic)
    _killed_pid: int | None = None
    _killed_at: float = 0.0
    _back: bool = False
    _first_file: bool = False
    _ready: bool = False
    _versions: int = 0

    @classmethod
    def prepare(cls, directory: Path, *, seconds: int, rate: int, say: Callable[..., None]) -> Demo:
        """An empty demonstration in `directory`; an earlier one there is removed, unless it still runs. Anything else is
        refused, and so is a directory that another user made or could replace."""
        if directory.exists():
            check_private_directory(directory)
        if directory.exists() and any(directory.iterdir()):
            if not (directory / _MARKER).exists():
                raise BadInput(f"{directory} holds other files; nothing was changed", hint="give another --directory")
            state = directory / "state"
            with REAL_FILES.lock(state / "lock") if state.is_dir() else nullcontext():  # not under another demo's feet
                shutil.rmtree(directory)
        make_private_directory(directory)
        write_private(directory / _MARKER, "made by penstock demo; removed by the next one\n")
        changes = seconds * rate
        path = directory / "penstock.yaml"
        write_private(
            path,
            yaml.safe_dump(
                {
                    "version": 1,
                    "state_dir": "./state",
                    "source": {"type": "demo", "changes": changes, "rate": rate},
                    "sinks": {
                        _SINK: {"url": f"./{_SINK}", "format": "parquet", "flush": {"size": "4MiB", "every": "2s"}}
                    },
                    "log": {"keep": {"for": None}},  # all of it is compared with the sink at the end
                },
                sort_keys=False,
            ),
        )
        return cls(directory, load(path), changes, say)

    @property
    def lake(self) -> Path:
        return self.directory / _SINK

    def run(self, on_progress: Callable[[RunStatus], None]) -> RunSummary:
        """Streams to the end of the demo source; kills the delivery process once on the way."""

        def progress(status: RunStatus) -> None:
            self._watch(status)
            on_progress(status)

        self._started = time.monotonic()
        return run(run_settings(self.config, once=True), on_progress=progress)

    def sample(self, table: str = "orders", rows: int = 3) -> pa.Table | None:
        """The last few changes of a table: its first columns and the one that was added last."""
        files = [name for d in self._directories() if d.table == table for name in d.files]
        if not files:
            return None
        data = pq.ParquetFile(self.lake / files[-1]).read(use_threads=False)
        names = [n for n in data.column_names if n != "_seq"]
        shown = names[:6] + [n for n in names[-1:] if n not in names[:6]]
        return data.select(shown).slice(max(0, data.num_rows - rows))

    def _directories(self) -> list[DataDirectory]:
        return data_directories(open_place(str(self.lake), REAL_FILES).objects)

    def _watch(self, status: RunStatus) -> None:
        """Says once what happened since the last status, and kills the delivery process when it is time."""
        elapsed = time.monotonic() - self._started
        children = {child.name: child for child in status.children}
        driver = children.get("driver")
        if not self._ready and driver is not None and driver.state == "running":
            self._ready = True
            self.say("  [green]✓[/] Spark ready {} s", f"{elapsed:.1f}")
        if not self._first_file and status.files:
            directories = [d for d in self._directories() if d.files]
            if directories:
                self._first_file = True
                path = Path(_SINK) / directories[0].files[0]
                self.say("  [green]✓[/] first file {} s  {}", f"{elapsed:.1f}", path)
        self._watch_schema()
        delivery = children.get("delivery")
        if delivery is None or delivery.pid is None:
            return
        if self._killed_pid is None and status.rows >= self.changes * _KILL_AFTER_SHARE:
            self._killed_pid, self._killed_at = delivery.pid, time.monotonic()
            os.kill(delivery.pid, signal.SIGKILL)
            self.say("  [yellow]![/] killed the delivery process on purpose (kill -9)")
            return
        came_back = self._killed_pid not in (None, delivery.pid) and delivery.state == "running"
        if came_back and not self._back:
            self._back = True
            self.say("  [green]✓[/] delivery is back after {} s", f"{time.monotonic() - self._killed_at:.1f}")

    def _watch_schema(self) -> None:
        versions = sorted((self.lake / "shop" / "orders").glob("version=*"))
        if len(versions) > 1 and self._versions <= 1:
            self.say(
                "  [yellow]![/] ALTER TABLE shop.orders ADD note: its rows were flushed first, then {}",
                versions[-1].name,
            )
        self._versions = len(versions)
