"""`penstock resume`, the whole: a plan from the log and the table's definition, made durable by the log's writer.

While a run owns the flow, its capture process is that writer, and the run's changefeeds begin a new run each, which
delivers what was held back. If none runs, the command is: it takes the lock of the state directory, so that no run starts
meanwhile. Killed at any moment, either everything of the resumption is in the log or nothing is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.capture.loop import open_log
from penstock.capture.resumption import Resumption, resume_stopped
from penstock.errors import BadInput, Unavailable
from penstock.files import REAL_FILES
from penstock.log import LogReader
from penstock.operations.config.model import Config
from penstock.operations.resume.definition import as_it_was, from_file, from_server
from penstock.operations.resume.plan import ResumePlan, plan_resume
from penstock.operations.status import ask_run
from penstock.schema.catalog import Catalog
from penstock.schema.model import TableSchema
from penstock.supervisor.requests import ANSWER_SECONDS_MAX
from penstock.wire import connect, socket_path

_ATTEMPTS_MAX = 3  # the table may be changed at the source while the plan is made


@dataclass(frozen=True, slots=True)
class Resumed:
    """What was done. `running`: a run delivers the rows now; else the next one does."""

    plan: ResumePlan
    origin: str
    running: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.plan.table.name,
            "columns": [column.name for column in self.plan.table.columns],
            "definition": self.origin,
            "rows": self.plan.rows,
            "statements": list(self.plan.statements),
            "parked_again": self.plan.parked_again or None,
            "running": self.running,
        }


def resume_table(config: Config, name: str, file: Path | None = None) -> Resumed:
    """Resumes the parked table. Raises `BadInput` if it is not parked or its definition does not fit, `Unavailable` if the
    flow or the server does not answer now; nothing is changed then, unless the answer of the flow was lost."""
    directory = config.state_dir / "log"
    if not directory.exists():
        raise BadInput(f"{directory} does not exist: nothing was captured yet", hint="penstock run starts the flow")
    for attempt in range(_ATTEMPTS_MAX):
        try:
            if ask_run(config.state_dir) is not None:
                return _attempt(config, name, file, lambda resumption: _ask(config.state_dir, resumption), running=True)
            with REAL_FILES.lock(config.state_dir / "lock"):
                return _attempt(config, name, file, lambda resumption: _write(config, resumption), running=False)
        except Unavailable:
            if attempt == _ATTEMPTS_MAX - 1 or file is None:
                raise
    raise AssertionError("unreachable")


def _attempt(
    config: Config, name: str, file: Path | None, write: Callable[[Resumption], None], *, running: bool
) -> Resumed:
    chosen = from_file(file) if file is not None else None

    def define(parked: TableSchema, before: Catalog, mariadb: bool) -> TableSchema:
        nonlocal chosen
        chosen = chosen or from_server(config, parked)
        return chosen.define(parked, before, mariadb)

    plan = _plan(config, name, define)
    assert chosen is not None
    if chosen.is_now:
        plan = _plan(config, name, chosen.define)  # the log has come to where the server was
        as_it_was(chosen, plan.changes, plan.table)
    write(plan.resumption)
    return Resumed(plan, chosen.origin, running)


def _plan(config: Config, name: str, define: Callable[[TableSchema, Catalog, bool], TableSchema]) -> ResumePlan:
    with closing(LogReader.open(config.state_dir / "log")) as reader:
        return plan_resume(reader, name, define)


def _ask(state_dir: Path, resumption: Resumption) -> None:
    path = socket_path(state_dir / "run", "control")
    with connect(path, timeout_seconds=ANSWER_SECONDS_MAX + 10) as client:
        client.call("resume", **resumption.to_json())


def _write(config: Config, resumption: Resumption) -> None:
    with closing(open_log(config.state_dir, config.log.settings())) as log:
        resume_stopped(resumption, log, config.source.tables, config.state.settings())
