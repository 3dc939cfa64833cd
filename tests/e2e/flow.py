"""A real `penstock run` as a user starts it, and the means to kill each of its processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from penstock.objects import open_objects
from penstock.process import EXIT_LEFT, EXIT_OK
from tests.consumer.consumer import read_sink, settings_for
from tests.support.waiting import LIMIT_SECONDS, wait_until

PENSTOCK = (sys.executable, "-m", "penstock.cli")
# Processes that come back soon first: the stream goes on meanwhile.
VICTIMS = ("worker", "capture", "delivery", "jvm", "driver")
PARTS = ("run", *VICTIMS)
# A busy laptop starts a JVM and Spark in minutes.
_LIMIT_SECONDS = 2 * LIMIT_SECONDS
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def penstock(*arguments: str | Path, seconds: float = _LIMIT_SECONDS) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [*PENSTOCK, *map(str, arguments)], capture_output=True, text=True, timeout=seconds, check=False
    )


class Flow:
    """One configuration in a directory of its own, run as a child process that prints JSON."""

    def __init__(
        self,
        directory: Path,
        source: dict[str, Any],
        sinks: dict[str, dict[str, Any]],
        log: dict[str, Any] | None = None,
        **sections: Any,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.config = directory / "penstock.yaml"
        self.state_dir = directory / "state"
        self._source, self._sinks = source, sinks
        self.sinks = sinks  # what is changed here holds from the next `configure` on
        self._log = log or {"keep": {"for": None}}  # all of it is compared with the sinks
        self._sections = sections  # of the configuration, beside those that every flow has
        self.configure()
        self.process: subprocess.Popen[str] | None = None
        self._reading: threading.Thread | None = None
        self._interrupted = False
        self.events: list[dict[str, Any]] = []
        self.restarts: dict[str, int] = {}

    def configure_sinks(self, **sinks: dict[str, Any]) -> None:
        """Writes the configuration, with these sinks alone."""
        self._sinks = sinks
        self.configure()

    def configure(self, **source: Any) -> None:
        """Writes the configuration, with some of the source's settings changed."""
        for name, sink in self._sinks.items():
            sink.setdefault("url", f"file://{self.directory}/{name}")
        value = {
            "version": 1,
            "state_dir": str(self.state_dir),
            "source": {**self._source, **source},
            "sinks": self._sinks,
            "log": self._log,
            "spark": {"master": "local[2,3]"},
            **self._sections,
        }
        self.config.write_text(yaml.safe_dump(value))

    def kill_each(self) -> None:
        """kill -9 of every kind of process in turn, each only after rows were delivered since the last kill."""
        for victim in VICTIMS:
            rows = self.last.get("rows", 0)
            self.wait_for(f"progress before {victim} dies", lambda s, rows=rows: s["rows"] > rows)
            self.kill_victim(victim)
        rows = self.last["rows"]
        self.wait_for("progress after the last kill", lambda s: s["rows"] > rows)

    def kill_next(self, number: int, victim: str, others: Mapping[str, Callable[[], None]]) -> None:
        """As `kill_each`, of one: of `run`, too, which is then started again. `others`: what kills those that are no processes
        of the flow. Says what it does, for whoever watches a long run."""
        rows = self.last.get("rows", 0)
        self.wait_for(f"progress before {victim} dies", lambda s: s["rows"] > rows)
        print(f"kill {number}, of {victim}: {self.last['rows']:,} rows since the last start", flush=True)
        if victim in others:
            others[victim]()
        elif victim == "run":
            self.kill()
            self.start(once=False)
        else:
            self.kill_victim(victim)

    def start(self, *options: str, once: bool) -> None:
        """Starts it. `events` are those of this start."""
        self.events = []
        self._interrupted = False
        log = (self.directory / "run.err").open("a")
        self.process = subprocess.Popen(
            [*PENSTOCK, "run", "-c", str(self.config), "--json", *(["--once"] if once else []), *options],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self._reading = threading.Thread(target=_read_events, args=(self.process, self.events), daemon=True)
        self._reading.start()

    @property
    def last(self) -> dict[str, Any]:
        return next((e for e in reversed(self.events) if e.get("event") == "progress"), {})

    def wait_for(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> None:
        """Returns once a snapshot meets the condition."""

        def met() -> bool:
            if self.last and condition(self.last):
                return True
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the run ended while waiting for {what}: {self.events[-1:]} {self.errors()}")
            return False

        wait_until(met, what, lambda: f"; the last snapshot: {self.last}; {self.errors()}", seconds=_LIMIT_SECONDS)

    def finish(self, *, consumed: bool = True) -> dict[str, Any]:
        """Waits for the run's end and gives its summary. `consumed`: then its sinks are read as a consumer reads them."""
        assert self.process is not None and self._reading is not None
        try:
            code = self.process.wait(_LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            last = self.last
            self.kill()
            raise AssertionError(f"the run did not end in {_LIMIT_SECONDS} s: {last}; {self.errors()}") from None
        self._reading.join(_LIMIT_SECONDS)  # the summary is the last line
        summary = next((e for e in reversed(self.events) if e.get("event") == "summary"), {})
        # What is interrupted may leave something; what ends by itself has done all.
        assert code in ((EXIT_OK, EXIT_LEFT) if self._interrupted else (EXIT_OK,)), (
            f"exit {code}: {self.events[-1:]}; {self.errors()}"
        )
        if consumed:
            self.consume(settled=bool(summary.get("drained")))
        return summary

    def consume(self, *, settled: bool) -> None:
        """Every sink satisfies what a consumer needs; `settled`: and nothing is half done."""
        for name, sink in self._sinks.items():
            protocol = sink["format"] if sink["format"] != "debezium-json" else None
            read_sink(self.files_of(name), settings_for(protocol, settled=settled))

    def files_of(self, sink: str) -> Path:
        """The sink's files: where they are, or a new copy of those in an object store."""
        url = str(self._sinks[sink]["url"])
        if url.startswith("file://"):
            return Path(url.removeprefix("file://"))
        copy = self.directory / "copies" / sink
        shutil.rmtree(copy, ignore_errors=True)
        objects = open_objects(url)
        for name in objects.walk():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            found = objects.read(name)
            assert found is not None, name
            (copy / name).write_bytes(found.data)
        return copy

    def interrupt(self) -> None:
        assert self.process is not None
        self._interrupted = True
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def errors(self) -> str:
        """The ends of every process's log, for a failing test's message."""
        parts = []
        for path in [self.directory / "run.err", *(self.state_dir / "run").glob("*.log")]:
            if path.exists() and path.stat().st_size:
                parts.append(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}")
        return "\n".join(parts)

    def pid(self, victim: str) -> int | None:
        """The process that plays this part now, or None where it is not up."""
        if victim == "run":
            return None if self.process is None else self.process.pid
        if victim in ("capture", "driver", "delivery"):
            try:
                return int((self.state_dir / "run" / f"{victim}.pid").read_text())
            except (FileNotFoundError, ValueError):
                return None
        driver = self.pid("driver")
        if driver is None:
            return None
        family = _descendants(driver)
        if victim == "jvm":
            return next(
                (pid for pid in family if _command(pid) == "java" and "launcher.Main" not in _arguments(pid)), None
            )
        daemons = [pid for pid in family if "penstock.spark.daemon" in _arguments(pid)]
        workers = [pid for pid in daemons if _parent(pid) in daemons]
        return workers[0] if workers else None

    def resident_bytes(self, part: str) -> int:
        """The memory that this process has now; 0 where it is not up."""
        pid = self.pid(part)
        fields = [] if pid is None else _read(f"/proc/{pid}/statm").split()
        return int(fields[1]) * PAGE_BYTES if fields else 0

    def kill_victim(self, victim: str) -> None:
        """kill -9, as soon as the process is there."""

        def killed() -> bool:
            pid = self.pid(victim)
            try:
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False
            return pid is not None

        wait_until(killed, f"{victim} to kill", self.errors, seconds=_LIMIT_SECONDS)

    def verify(self, *arguments: str, seconds: float = _LIMIT_SECONDS) -> tuple[int, dict[str, Any]]:
        done = penstock("verify", "-c", self.config, "--json", *arguments, seconds=seconds)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout.strip().splitlines()[-1])


def _read_events(process: subprocess.Popen[str], events: list[dict[str, Any]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):  # a killed process may have said half of one
            events.append(json.loads(line))


def _read(path: str) -> str:
    """A file of /proc, or nothing where the process is gone."""
    try:
        return Path(path).read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _parent(pid: int) -> int:
    stat = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(stat[1]) if stat else 0


def _command(pid: int) -> str:
    return _read(f"/proc/{pid}/comm").strip()


def _arguments(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ")


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        for child in children.get(todo.pop(), []):
            found.append(child)
            todo.append(child)
    return found
