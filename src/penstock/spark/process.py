"""`python -m penstock.spark`: the driver process. How it gets its settings, speaks and ends: `penstock.process`.

Settings:

    {"state_dir": "...", "changefeeds": {name: {"format", "only", "exclude", ...}}, "spark": {"spark.…": "…"}}

Changefeeds come and go by requests (`changefeeds.py`). Events: `ready` once Spark is up, `progress` at most once a second
for each changefeed, `restart` when a changefeed's run begins again, `failed` when one stands still for good, `error`. Exit
codes: 0 asked to stop, 2 configuration, 75 try again (the JVM died). The JVM and the Python workers end with this process.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import BadInput, PenstockError
from penstock.files.private import write_private
from penstock.process import EXIT_OK, ChildProcess, Event, importing
from penstock.secret import Secret
from penstock.spark.failure import exit_code
from penstock.spark.job import Job
from penstock.spark.jvm.class_archive import find_archive
from penstock.spark.jvm.context import scratch_directory
from penstock.spark.jvm.launch import Launch
from penstock.wire import socket_path

_CHANGEFEED_KEYS = ("only", "exclude", "source_include", "source_exclude", "batch_bytes_max", "range_bytes_min",
                    "cache_bytes_max", "in_flight_bytes_max", "read_attempts_max", "poison", "rules")  # fmt: skip


def main() -> int:
    child = ChildProcess("driver")
    launch: Launch | None = None
    try:
        settings = _checked(child.read_settings())
        # First of all: what this process imports meanwhile costs nobody anything.
        archive = find_archive()
        launch = Launch(
            Path(settings["state_dir"]).absolute(),
            settings.get("spark") or {},
            java_options=archive.options(),
            workers_ahead=True,
        )
        code = run_driver(settings, child, launch)
        if code == EXIT_OK:
            archive.make_in_background()
    except PenstockError as error:
        child.say_error(error)
        code = exit_code(error, "config")
        if launch is not None:
            launch.end()
    # Not a clean end of the interpreter, which would wait for the JVM's shutdown hooks: the JVM ends by itself when its
    # standard input closes.
    sys.stdout.flush()
    os._exit(code)


def run_driver(settings: dict[str, Any], child: ChildProcess, launch: Launch) -> int:
    """Runs the changefeeds until the process is asked to stop, or Spark is gone. The exit code."""
    with importing():
        import pyspark  # noqa: F401

        from penstock.spark.batches import warm
        from penstock.spark.changefeeds import Changefeeds
        from penstock.spark.jvm.engine import Engine
        from penstock.spark.runs import ChangefeedRuns

    stop = child.stop
    state_dir = Path(settings["state_dir"]).absolute()
    for name, value in settings["changefeeds"].items():
        job_of(state_dir, name, value)  # what makes no sense is told before Spark is there
    engine = Engine(launch.context())
    child.ignore_interrupts()
    parallelism = engine.parallelism
    child.say({"event": Event.READY, "spark": engine.version, "parallelism": parallelism})
    child.report_metrics()
    codes: list[int] = []

    def lost(code: int) -> None:
        codes.append(code)
        stop.set()

    control = socket_path(state_dir / "run", "control")

    def make(name: str, value: dict[str, Any], stop: threading.Event) -> ChangefeedRuns:
        job = replace(job_of(state_dir, name, value), parallelism=parallelism)
        keep_mask_key(state_dir, name, value)
        return ChangefeedRuns(engine, job, control=control, emit=child.say, stop=stop)

    changefeeds = Changefeeds(make, child.say, lost)
    for name, value in settings["changefeeds"].items():
        changefeeds.add(name, value)
    threading.Thread(target=warm, args=(engine,), name="warm", daemon=True).start()
    child.answer_until_stop(changefeeds.handlers)
    changefeeds.stop()
    return codes[0] if codes else EXIT_OK


def job_of(state_dir: Path, name: str, value: dict[str, Any]) -> Job:
    """A changefeed's settings as a job, still without a run."""
    from penstock.encode.settings import OPTIONS, section_of

    if value.get("format") not in OPTIONS:
        raise BadInput(
            f"{name}: the format {value.get('format')!r} is unknown", hint=f"use one of {', '.join(sorted(OPTIONS))}"
        )
    given: dict[str, Any] = {key: value[key] for key in _CHANGEFEED_KEYS if value.get(key) is not None}
    given = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
    return Job(
        state_dir=str(state_dir),
        delivery_socket=str(socket_path(state_dir / "run", "delivery")),
        changefeed=name,
        run="",
        start="0:0",
        format=value["format"],
        format_options=value.get(section_of(value["format"])) or {},
        mask_key_file=str(mask_key_file(state_dir, name)) if value.get("mask_key") else "",
        **given,
    )


def mask_key_file(state_dir: Path, changefeed: str) -> Path:
    """Where the tasks of a changefeed find the key of its masks."""
    return scratch_directory(state_dir) / f"{changefeed}.mask-key"


def keep_mask_key(state_dir: Path, name: str, value: dict[str, Any]) -> None:
    """Writes the key for the tasks. In the job, which goes through Spark, it would be in its plans and its UI."""
    if value.get("mask_key"):
        write_private(mask_key_file(state_dir, name), Secret(str(value["mask_key"])).reveal())


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    if "state_dir" not in value or not value.get("changefeeds"):
        raise BadInput("the settings on standard input name no state_dir or no changefeeds")
    return value
