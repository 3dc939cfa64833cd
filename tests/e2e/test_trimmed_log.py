"""A flow whose log is trimmed and offloaded under it: nothing is missed, and it goes on from what is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log import LogReader
from penstock.log.ledgers.info import LedgerInfo
from tests.e2e.flow import Flow, penstock
from tests.e2e.load import Load, create_tables, source_of
from tools.components.mariadb import MariaDbServer

pytestmark = [pytest.mark.spark, pytest.mark.mariadb]
TABLES = 3
DATABASE = "trimmed"


def _ledgers(flow: Flow) -> list[LedgerInfo]:
    reader = LogReader.open(flow.state_dir / "log")
    try:
        return [view.info for view in reader.ledgers()]
    finally:
        reader.close()


def test_a_trimmed_and_offloaded_log_serves_its_flow(
    mariadb_server: MariaDbServer, s3_url: str, tmp_path: Path
) -> None:
    create_tables(mariadb_server, DATABASE, TABLES)
    flow = Flow(
        tmp_path,
        source_of(mariadb_server, DATABASE),
        {"lake": {"format": "parquet", "flush": {"size": "1MiB", "every": "500ms"}}},
        {"ledger": "256KiB", "keep": {"size": "1MiB"}, "offload": {"url": s3_url, "keep_local": 0, "lag": 0}},
    )

    def trimmed_beyond(ledger: int) -> Callable[[dict[str, Any]], bool]:
        return lambda _snapshot: _ledgers(flow)[0].id > ledger

    try:
        flow.start(once=False)
        flow.wait_for("a capture that follows the server", lambda s: s["source"]["position"] is not None)
        with Load(mariadb_server, DATABASE, TABLES).running():
            flow.wait_for("a log that was trimmed", trimmed_beyond(1))
            flow.wait_for("a ledger that moved", lambda _: any(not info.is_local for info in _ledgers(flow)))
            flow.kill_victim("capture")  # and comes back to a log whose first entries are gone
            rows, first = flow.last["rows"], _ledgers(flow)[0].id
            flow.wait_for("rows and trims after that", lambda s: s["rows"] > rows and trimmed_beyond(first)(s))
        flow.interrupt()
        flow.finish()
        flow.start(once=True)  # the driver starts on a trimmed log
        flow.finish()
    finally:
        flow.kill()
    done = penstock("log", "offload", flow.state_dir / "log", "--to", s3_url, "--lag-seconds", "0", "--json")
    assert done.returncode == 0, done.stderr
    ledgers = _ledgers(flow)
    assert ledgers[0].id > 1
    assert not any(info.is_local for info in ledgers if info.sealed), "what is left of the log is read from the bucket"
    code, report = flow.verify()
    assert "sinks" in report, report
    (lake,) = report["sinks"]
    assert (code, report["equal"]) == (0, True), lake
    assert lake["before_log"] > 0
    assert lake["compared_with_source"] == lake["source_equal"] == TABLES
    assert any("the log was trimmed" in note for note in lake["notes"])
