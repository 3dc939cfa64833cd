"""The driver process: `python -m penstock.spark`.

Standard input: one JSON document, then nothing; when it closes, the process ends.

    {"state_dir": "...", "changefeeds": {name: {"format", "only", "exclude", ...}}, "spark": {"spark.…": "…"}}

Standard output: one JSON object a line: `ready` once the session is up, `progress` at most once a second for each
changefeed, `restart` when a run begins again, and `error` with kind, message and hint. Exit codes: 0 told to stop, 2
configuration, 3 source, 4 sink, 75 try again (the JVM died). The JVM and the Python workers end with this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from penstock.delivery.process import end_with_parent, read_document
from penstock.errors import BadInput, PenstockError, Terminal
from penstock.spark import failure as fault
from penstock.spark.failure import EXIT_RETRY, Fault
from penstock.spark.job import Job
from penstock.spark.session import scratch_directory, start_session
from penstock.wire import socket_path

_STOP_SECONDS_MAX = 20.0
_CHANGEFEED_KEYS = ("only", "exclude", "source_include", "source_exclude", "batch_bytes_max", "range_bytes_min")


def main() -> int:
    end_with_parent()
    output = _own_output()
    lock = threading.Lock()

    def emit(event: dict[str, Any]) -> None:
        with lock, contextlib.suppress(BrokenPipeError):
            output.write(json.dumps(event, ensure_ascii=False) + "\n")
            output.flush()

    try:
        settings = _checked(read_document(sys.stdin))
        code = run_driver(settings, emit)
    except PenstockError as error:
        _tell(emit, error)
        code = fault.exit_code(error, "config")
    # The JVM ends when its standard input closes; waiting for its shutdown hooks would only delay a stop.
    sys.stdout.flush()
    os._exit(code)


def run_driver(settings: dict[str, Any], emit: Any) -> int:
    """Runs every changefeed's query until standard input closes, SIGTERM, or a terminal error. The exit code."""
    from penstock.spark.query import ChangefeedQuery, EngineLost

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    signal.signal(signal.SIGINT, lambda _number, _frame: stop.set())
    threading.Thread(target=_stop_at_end_of_input, args=(stop,), daemon=True).start()
    state_dir = Path(settings["state_dir"]).absolute()
    jobs = [job_of(state_dir, name, value) for name, value in settings["changefeeds"].items()]
    session = start_session(state_dir, settings.get("spark") or {})
    parallelism = int(session.sparkContext.defaultParallelism)
    emit({"event": "ready", "spark": session.version, "parallelism": parallelism})
    codes: list[int] = []

    def follow(query: ChangefeedQuery) -> None:
        try:
            query.run()
        except Fault as error:
            _tell(emit, error.error, changefeed=query.changefeed)
            codes.append(fault.exit_code(error.error, error.where))
        except EngineLost as error:
            emit({"event": "error", "kind": "Unavailable", "message": "Spark's JVM ended", "hint": str(error)[:200]})
            codes.append(EXIT_RETRY)
        except Exception as error:
            _tell(emit, Terminal(f"{type(error).__name__}: {error}"), changefeed=query.changefeed)
            codes.append(EXIT_RETRY)
        if codes:
            stop.set()

    threads = []
    control = socket_path(state_dir / "run", "control")
    scratch = scratch_directory(state_dir)
    for job in jobs:
        job = replace(job, parallelism=parallelism)  # noqa: PLW2901
        query = ChangefeedQuery(session, job, control=control, scratch=scratch, emit=emit, stop=stop)
        threads.append(threading.Thread(target=follow, args=(query,), name=f"query-{job.changefeed}", daemon=True))
    for thread in threads:
        thread.start()
    while not stop.wait(3600):
        pass
    for thread in threads:
        thread.join(_STOP_SECONDS_MAX)
    return codes[0] if codes else 0


def job_of(state_dir: Path, name: str, value: dict[str, Any]) -> Job:
    """A changefeed's settings as a job, still without a run."""
    from penstock.encode import FORMATS

    if value.get("format") not in FORMATS:
        raise BadInput(
            f"{name}: the format {value.get('format')!r} is unknown", hint=f"use one of {', '.join(sorted(FORMATS))}"
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
        **given,
    )


def _checked(value: dict[str, Any]) -> dict[str, Any]:
    if "state_dir" not in value or not value.get("changefeeds"):
        raise BadInput("the settings on standard input name no state_dir or no changefeeds")
    return value


def _stop_at_end_of_input(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):  # past the buffered stream: its lock would disturb the end
        pass
    stop.set()


def _own_output() -> TextIO:
    """Standard output, out of reach for the JVM and for stray prints, which go to standard error."""
    own = os.dup(1)
    os.set_inheritable(own, False)
    os.dup2(2, 1)
    return os.fdopen(own, "w", encoding="utf-8")


def _tell(emit: Any, error: PenstockError, **more: Any) -> None:
    emit({"event": "error", "kind": fault.kind_of(error), "message": error.message, "hint": error.hint, **more})
