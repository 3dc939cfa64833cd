"""A bucket that stops answering, under a whole flow: memory and disk stay inside their limits, nothing new is planned for it,
the other sink goes on; and once it answers, everything is there."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.payload_split import PAYLOAD_BYTES
from penstock.wire import Client, socket_path
from tests.delivery.s3.proxy import Exchange, Fault, S3Proxy
from tests.e2e.flow import Flow
from tests.support.budget import OUTAGE_SECONDS
from tests.support.waiting import LIMIT_SECONDS
from tools.components.s3 import S3Server

pytestmark = [pytest.mark.spark, pytest.mark.s3]
MIB = 1 << 20
TASKS = 2  # at a time
CHANGES = 50_000  # several times what the spool may hold of them as Canal-JSON
SPOOL_DISK, SPOOL_MEMORY = 12 * MIB, 3 * MIB
# Of the process: connections, buffers of threads, a file on its way; not of what waits.
GROWTH_BYTES_MAX = 96 * MIB


class Watch:
    """What delivery says of the sink's spool, and what its process and its disk take: the most that was seen."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._client = Client(socket_path(flow.state_dir / "run", "delivery"), timeout_seconds=LIMIT_SECONDS)
        self._resident = flow.resident_bytes("delivery")
        self.most: Counter[str] = Counter()

    def look(self) -> dict[str, Any]:
        status: dict[str, Any] = self._client.call("status")["changefeeds"]["bucket"]
        files = (self._flow.state_dir / "run" / "spool" / "bucket").glob("**/*")
        seen = {name: int(status[name]) for name in ("spool_bytes", "spool_memory_bytes")}
        seen["grown"] = self._flow.resident_bytes("delivery") - self._resident
        seen["disk"] = sum(_size(path) for path in files)
        for name, value in seen.items():
            self.most[name] = max(self.most[name], value)
        return status

    def check(self) -> None:
        most = self.most
        # A task that finds room stages one payload more.
        assert 0 < most["spool_bytes"] <= SPOOL_DISK + TASKS * PAYLOAD_BYTES, most
        assert 0 < most["disk"] <= SPOOL_DISK, most
        assert most["spool_memory_bytes"] <= SPOOL_MEMORY + TASKS * PAYLOAD_BYTES, most
        assert most["grown"] <= SPOOL_MEMORY + GROWTH_BYTES_MAX, {name: value / MIB for name, value in most.items()}


def _size(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size if path.is_file() else 0
    return 0


def test_a_bucket_that_stops_answering(
    s3_server: S3Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = {"size": "1MiB", "every": "500ms"}
    flow = Flow(
        tmp_path,
        {"type": "demo", "seed": 3, "changes": CHANGES},
        {
            "bucket": {"format": "canal-json", "flush": flush, "url": s3_url},
            "lake": {"format": "parquet", "flush": flush},
        },
        limits={"spool_disk": SPOOL_DISK, "spool_memory": SPOOL_MEMORY},
    )
    puts: list[str] = []
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(S3Proxy(s3_server.endpoint).running())
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        stack.callback(flow.kill)

        def plan(exchange: Exchange) -> Fault | None:
            """From the first data file on nothing comes back."""
            return Fault.HOLD if puts or "/CDC" in exchange.name else None

        def see(exchange: Exchange) -> None:
            if exchange.stored and "/CDC" in exchange.name:
                puts.append(exchange.name)

        proxy.plan, proxy.on_done = plan, see
        flow.start(once=True)
        flow.wait_for("all changes at the other sink", lambda s: _rows(s)["lake"] >= CHANGES)
        watch = Watch(flow)
        flow.wait_for("wakes that are kept back", lambda _: watch.look()["wakes_suppressed"] > 0)
        until = time.monotonic() + OUTAGE_SECONDS
        while time.monotonic() < until:
            status = watch.look()
            assert status["suppressed"] and not puts
            time.sleep(0.1)
        assert _rows(flow.last)["bucket"] == 0
        proxy.plan = lambda _exchange: None
        proxy.release()
        flow.wait_for("rows in the bucket", lambda s: watch.look() is not None and _rows(s)["bucket"] > 0)
        summary = flow.finish()
        watch.check()
        assert summary["drained"] and summary["restarts"].get("delivery", 0) == 0, summary
        code, report = flow.verify()
        assert code == 0, report
        assert all(sink["changes"] >= CHANGES for sink in report["sinks"])


def _rows(snapshot: dict[str, Any]) -> dict[str, int]:
    return {each["name"]: each["rows"] for each in snapshot["changefeeds"]}
