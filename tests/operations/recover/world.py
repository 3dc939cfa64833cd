"""A whole flow without Spark: a real server or the demo, capture, log, keepers, control.sock and delivery in this process; the
driver's own batches and tasks run in a thread instead of a JVM."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from penstock.capture.loop import Capture, open_log
from penstock.capture.process import CaptureSettings, make_source
from penstock.changefeed.maintainer import Maintainer
from penstock.clock import SYSTEM_CLOCK
from penstock.delivery.process import open_server
from penstock.delivery.settings import DeliverySettings
from penstock.encode import open_format
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.objects import open_objects
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config, changefeed_settings, run_settings
from penstock.spark import task
from penstock.spark.process import job_of
from penstock.spark.runs import ChangefeedRuns
from penstock.supervisor.control_server import ControlServer, control_path
from penstock.supervisor.delivery_client import DeliveryClient
from penstock.supervisor.feeds.changefeeds import Changefeeds
from penstock.supervisor.settings import without_mask_keys
from tests.support.waiting import wait_until
from tools.components.database import DatabaseServer

ENTRY_BYTES = 8 << 10  # so that a log of a few rows has several entries, and batches


class ThreadEngine:
    """Runs the tasks of a job one after the other, where Spark would run them beside each other."""

    parallelism = 2

    def run(self, _group: str, ranges: Iterable[Any], task: Callable[[Any], Iterable[Any]]) -> list[Any]:
        return [manifest for one in ranges for manifest in task([one])]

    def cancel(self, _group: str) -> None: ...

    def check(self) -> None: ...


class World:
    """`config` may be read again after the state directory is gone."""

    def __init__(self, directory: Path, source: dict[str, Any], sinks: dict[str, dict[str, Any]], **more: Any) -> None:
        self.directory = directory
        for name, sink in sinks.items():
            sink.setdefault("url", f"file://{directory}/{name}")
            sink.setdefault("flush", {"size": "64KiB", "every": "1h"})
        document = {"version": 1, "state_dir": "./state", "source": source, "sinks": sinks, **more}
        path = directory / "penstock.yaml"
        path.write_text(yaml.safe_dump(document))
        path.chmod(0o600)
        self.path = path
        self.config: Config = load(path)
        self.state_dir = self.config.state_dir

    def capture(self) -> None:
        """Up to where the source is now."""
        self.state_dir.mkdir(mode=0o700, exist_ok=True)
        source = make_source(CaptureSettings(state_dir=self.state_dir, source=self.config.source))
        log = open_log(self.state_dir)
        try:
            assert Capture(log, source, tables=self.config.source.tables, entry_bytes=ENTRY_BYTES).run(until_now=True)
        finally:
            source.close()
            log.close()

    def deliver(self, *, flushed: bool = True, until: Callable[[], bool] | None = None) -> None:
        """Delivers the log. Not `flushed`: ends as if killed, once `until` holds."""
        flow = _Flow(self.config)
        try:
            flow.start()
            if flushed:
                flow.finish()
            else:
                assert until is not None
                wait_until(until, "what is to be at the sink", lambda: str(flow.failures), seconds=60)
        finally:
            flow.close()

    def lose(self) -> None:
        shutil.rmtree(self.state_dir)
        task._readers.clear()  # a worker has one log

    def copied(self, sink: str) -> bool:
        """What the sink in an object store has, copied to where that of a directory would be."""
        objects = open_objects(self.config.sinks[sink].url)
        for name in objects.walk():
            (self.directory / sink / name).parent.mkdir(parents=True, exist_ok=True)
            if (found := objects.read(name)) is not None:
                (self.directory / sink / name).write_bytes(found.data)
        return True

    def files(self, sink: str) -> list[str]:
        root = self.directory / sink
        return sorted(str(path.relative_to(root)) for path in root.rglob("CDC0*"))

    def rows(self, sink: str, table: str) -> list[dict[str, Any]]:
        """Every row of a table in the files that count, in their order."""
        settings = self.config.sinks[sink]
        fmt = open_format(settings.format, settings.format_options)
        found: list[dict[str, Any]] = []
        root = self.directory / sink / table.replace(".", "/")
        for index in sorted(root.rglob("CDC.index")):
            last = index.read_text().strip()
            names = sorted(path for path in index.parents[1].glob("CDC0*") if path.name <= last)
            for path in names:
                found += fmt.rows(path.read_bytes()).to_pylist()
        return found


class _Flow:
    def __init__(self, config: Config) -> None:
        self._config = config
        state_dir = config.state_dir
        (state_dir / "run").mkdir(exist_ok=True)
        self._reader = LogReader.open(state_dir / "log")
        self._delivery = DeliveryClient(state_dir)
        self.maintainers: dict[str, Maintainer] = {}
        settings = run_settings(config, once=True)
        self._feeds = Changefeeds(
            settings,
            self._delivery.begin_run,
            opened=self._opened,
            closed=lambda _name: None,
            files=REAL_FILES,
            clock=SYSTEM_CLOCK,
        )
        self._control = ControlServer(control_path(state_dir), list(config.sinks), lambda: None)  # type: ignore[arg-type,return-value]
        self._feeds.open(self._reader)
        value = {"state_dir": state_dir, "changefeeds": without_mask_keys(settings.changefeeds)}
        self._server = open_server(DeliverySettings.model_validate(value))
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []

    def _opened(self, maintainer: Maintainer) -> None:
        self.maintainers[maintainer.keeper.name] = maintainer
        self._control.attach(maintainer)

    def start(self) -> None:
        for name in self._config.sinks:
            job = job_of(
                self._config.state_dir,
                name,
                {**changefeed_settings(self._config, name), "batch_bytes_max": 2 * ENTRY_BYTES},
            )
            runs = ChangefeedRuns(
                ThreadEngine(),  # type: ignore[arg-type]
                job,
                control=control_path(self._config.state_dir),
                emit=lambda _event: None,
                stop=self._stop,
            )
            thread = threading.Thread(target=self._run, args=(runs,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, runs: ChangefeedRuns) -> None:
        try:
            runs.run()
        except BaseException as error:
            self.failures.append(error)

    def finish(self) -> None:
        end = self._reader.end()
        keepers = [one.keeper for one in self.maintainers.values()]

        def published() -> bool:
            assert not self.failures, self.failures
            return all(keeper.published_reached(end) for keeper in keepers)

        wait_until(published, "everything published", lambda: str(self._server.status()))
        flush = self._delivery.flush(list(self._config.sinks), 60.0)
        wait_until(lambda: flush.over, "the flush")
        assert not flush.errors, flush.errors
        assert all(keeper.reached(end) for keeper in keepers)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        self._server.close()
        self._control.close()
        self._feeds.close()
        self._reader.close()


def server_source(server: DatabaseServer, database: str) -> dict[str, Any]:
    return {
        "type": server.kind, "unix_socket": str(server.socket), "user": server.user, "password": server.password,
        "tables": {"include": [f"{database}.*"]},
    }  # fmt: skip
