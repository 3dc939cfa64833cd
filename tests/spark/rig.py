"""The whole way in one process: a real log from the demo source, a real keeper and control.sock, a real delivery."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import Maintainer
from penstock.delivery.process import open_server
from penstock.delivery.server import DeliveryServer
from penstock.delivery.settings import DeliverySettings
from penstock.encode import FORMATS
from penstock.entries.decode import decode_entries
from penstock.log import LogReader
from penstock.log.position import Seq
from penstock.schema.changes import ChangeBatch
from penstock.schema.view import SchemaView
from penstock.spark.batches import Task, run_partition
from penstock.spark.log_follower import LogFollower
from penstock.spark.process import job_of
from penstock.spark.runs import ChangefeedRuns
from penstock.supervisor.child import bound
from penstock.supervisor.control_server import ControlServer, control_path
from penstock.supervisor.delivery_client import DeliveryClient
from penstock.supervisor.status import RunStatus
from tests.support.waiting import LIMIT_SECONDS

CHANGEFEED = "raw"
MakeRig = Callable[..., "Rig"]


def _no_status() -> RunStatus:
    raise NotImplementedError


class Rig:
    def __init__(self, directory: Path, *, changes: int, fmt: str = "canal-json", **delivery: Any) -> None:
        self.state_dir = directory / "state"
        self.sink = directory / "sink"
        self.format = FORMATS[fmt]
        (self.state_dir / "run").mkdir(parents=True)
        self.changefeed: dict[str, Any] = {
            "url": f"file://{self.sink}",
            "format": fmt,
            "flush": {"size": "1MiB", "every": "200ms"},
        }
        self.capture(changes)
        self.reader = LogReader.open(self.state_dir / "log")
        self.keeper = Keeper.open(self.state_dir, CHANGEFEED, self.reader)
        client = DeliveryClient(self.state_dir)
        self.control = ControlServer(
            control_path(self.state_dir),
            [CHANGEFEED],
            _no_status,
            leave_out_at_delivery=lambda name, dispatcher, out: client.leave_out(name, dispatcher, out=out),
        )
        self.control.attach(Maintainer(self.keeper, client.begin_run))
        self._delivery_settings = delivery
        self.delivery: DeliveryServer | None = None
        self.start_delivery()
        self.events: list[dict[str, Any]] = []
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.runs: ChangefeedRuns | None = None
        self.task: Task = run_partition

    def capture(self, changes: int) -> None:
        """Fills the log with the demo shop's binlog."""
        settings = {
            "state_dir": str(self.state_dir),
            "source": {"type": "demo", "changes": changes},
            "until": "now",
        }
        command = bound([sys.executable, "-m", "penstock.capture"])
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps(settings) + "\n")
            child.stdin.flush()  # and it stays open: its end is the wish to stop
            said = child.stdout.read()
            assert child.wait(LIMIT_SECONDS) == 0, said

    def start_delivery(self) -> None:
        value = {"state_dir": self.state_dir, "changefeeds": {CHANGEFEED: self.changefeed}, **self._delivery_settings}
        self.delivery = open_server(DeliverySettings.model_validate(value))

    def stop_delivery(self) -> None:
        if self.delivery is not None:
            self.delivery.close()
            self.delivery = None

    def start(self, engine: Any, **changefeed: Any) -> None:
        job = job_of(self.state_dir, CHANGEFEED, {**self.changefeed, **changefeed})
        self.runs = ChangefeedRuns(
            engine,
            job,
            control=control_path(self.state_dir),
            emit=self.events.append,
            stop=self.stop,
            task=self.task,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        assert self.runs is not None
        try:
            self.runs.run()
        except BaseException as error:
            self.failure = error

    def wait_until(
        self, what: str, condition: Callable[[], bool], seconds: float = LIMIT_SECONDS, *, check: bool = True
    ) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert not check or self.failure is None, f"waiting for {what}: {self.failure}"
            assert time.monotonic() < end, f"no {what} in {seconds} s: {self.events[-3:]}"
            time.sleep(0.02)

    def wait_delivered(self, seconds: float = LIMIT_SECONDS) -> None:
        """Everything in the log is at the sink and acked."""
        end = self.reader.end()
        self.wait_until("delivery", lambda: self.keeper.reached(end), seconds)

    def close(self) -> None:
        self.stop.set()
        if self._thread is not None:
            self._thread.join(LIMIT_SECONDS)
        self.stop_delivery()
        self.control.close()
        self.keeper.close()
        self.reader.close()

    def batches(self, table: str = "") -> Iterator[ChangeBatch]:
        """The rows of the log, or of one of its tables, decoded without Spark."""
        view = schemas_of(self.state_dir / "log")
        entries = [e for e in self.reader.read(self.reader.first, self.reader.end()) if len(e.data)]
        for change in decode_entries(entries, view):
            if isinstance(change, ChangeBatch) and table in ("", change.table.table):
                yield change

    def expected(self) -> dict[str, list[Seq]]:
        """Every row of the log, per table, decoded without Spark."""
        rows: dict[str, list[Seq]] = {}
        for change in self.batches():
            rows.setdefault(change.table.name, []).extend(Seq.from_bytes(s.tobytes()) for s in change.seq)
        return rows

    def delivered(self) -> dict[str, list[Seq]]:
        """Every row in the sink's files, per table, in the order of the files."""
        rows: dict[str, list[Seq]] = {}
        for path in sorted(self.sink.rglob(f"CDC*{self.format.extension}")):
            schema, table = path.relative_to(self.sink).parts[:2]
            seqs = self.format.rows(path.read_bytes()).column("_seq").to_pylist()
            rows.setdefault(f"{schema}.{table}", []).extend(Seq.from_bytes(s) for s in seqs)
        return rows


def schemas_of(directory: Path) -> SchemaView:
    """Every schema in the log, each from its own position on."""
    feed, view = LogFollower.open(directory), SchemaView()
    while frames := feed.more():
        for frame in frames:
            for table in frame.schemas:
                view.add(frame.position, table)
    return view


__all__ = ["CHANGEFEED", "Rig", "schemas_of"]
