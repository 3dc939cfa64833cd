"""How one table is doing on its way to the sinks: asked of the delivery process, never a metric's label."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from penstock.errors import BadInput, Unavailable
from penstock.wire import connect, socket_path

_TIMEOUT_SECONDS = 5.0


class TableState(BaseModel):
    """One dispatcher, as of now; counts are of this run. `buffered_bytes` is all that it holds, in memory and on disk;
    `batch_bytes` are the payload bytes of the file that grows or is being written."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    changefeed: str
    dispatcher: str
    schema_name: str
    table: str
    epoch: int
    state: str
    suppressed: bool
    progress: str | None = None
    buffered_bytes: int
    batch_bytes: int
    batch_rows: int
    batch_age_seconds: float | None = None
    file_size_target: int
    flush_interval_seconds: float
    last_flush_reason: str | None = None
    last_flush_ms: int | None = None
    last_flush_bytes: int = 0
    seconds_since_last_flush: float | None = None
    recent_flushes: dict[str, int] = {}
    recent_seconds: float
    rows: int = 0
    files: int = 0
    bytes: int = 0
    ddls: int = 0
    last_path: str | None = None
    last_error: str | None = None
    attempts: int = 0


def parse_table(text: str) -> tuple[str, str]:
    """`schema.table`; everything after the first dot is the table's name."""
    schema, dot, table = text.partition(".")
    if not dot or not schema or not table:
        raise BadInput(f"{text!r} names no table", hint="write SCHEMA.TABLE, such as shop.orders")
    return schema, table


def read_table(state_dir: Path, name: str) -> tuple[TableState, ...] | None:
    """The dispatchers of a table, of all sinks. None if no delivery process answers."""
    schema, table = parse_table(name)
    path = socket_path(state_dir / "run", "delivery")
    if not path.exists():
        return None
    try:
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            found = client.call("table", schema=schema, table=table)["dispatchers"]
    except Unavailable:
        return None
    return tuple(TableState.model_validate({**each, "schema_name": each["schema"]}) for each in found)


def read_metrics(state_dir: Path) -> str | None:
    """The metrics of the delivery process as text for Prometheus. None if none answers."""
    path = socket_path(state_dir / "run", "delivery")
    if not path.exists():
        return None
    try:
        with connect(path, timeout_seconds=_TIMEOUT_SECONDS) as client:
            return str(client.call("metrics")["text"])
    except Unavailable:
        return None
