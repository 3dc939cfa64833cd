"""Delivery to a real S3 server on this machine: its rate beside bare obstore puts of the same bytes, and its memory.

The real delivery process has everything published at once and writes it. Server, delivery and this process share the
machine, as the peer and the server do. `BENCH_UPLOAD_MIB` is what one round uploads.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.result import Result
from penstock.delivery.payload import Payload
from penstock.delivery.spool.limits import READ_BACK_BYTES
from penstock.wire import Client, Server, socket_path
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED, data_payload
from tests.delivery.test_process import stage
from tools.components import REPOSITORY
from tools.components.s3 import BUCKET, S3Server

MIB = 1 << 20
ROUNDS = 5
UPLOAD_MIB = int(os.environ.get("BENCH_UPLOAD_MIB", "256"))
TABLES = 8
PAYLOAD_BYTES = 4 * MIB
WRITERS = 4
LIMIT_BYTES = 64 * MIB  # of memory, where it is watched
HELD_MIB = 1024
_TIMEOUT_SECONDS = 600.0


def measure(directory: Path) -> Iterator[Result]:
    server = S3Server(directory / "s3", capacity_mib=8 * ROUNDS * UPLOAD_MIB + 4 * HELD_MIB).start()
    try:
        for file_bytes, name in ((16 * MIB, "16 MiB"), (64 * MIB, "64 MiB")):
            yield from upload(directory / name.replace(" ", ""), server, file_bytes, name)
        yield from memory(directory / "memory", server)
    finally:
        server.stop()


def upload(directory: Path, server: S3Server, file_bytes: int, name: str) -> Iterator[Result]:
    """From the publish to the last file at the server; what was staged is in memory by then."""
    ours, bare = [], []
    with a_delivery(
        directory, server, file_bytes, spool_memory_low_bytes=1 << 30, spool_memory_high_bytes=1 << 30
    ) as to:
        for number in range(ROUNDS):
            bare.append(_put(server, f"{directory.name}-{number}", file_bytes))
            ours.append(to.deliver(UPLOAD_MIB * MIB))
    yield Result(
        f"delivery: files of {name} to S3", statistics.median(ours), "MB/s",
        "bare obstore puts of the same bytes", statistics.median(bare), goal=0.8,
    )  # fmt: skip


def memory(directory: Path, server: S3Server) -> Iterator[Result]:
    limits = {"spool_memory_low_bytes": LIMIT_BYTES // 2, "spool_memory_high_bytes": LIMIT_BYTES}
    with a_delivery(directory, server, 16 * MIB, **limits) as to:
        before = to.resident("VmRSS:")
        to.deliver(HELD_MIB * MIB)
        peak = to.resident("VmHWM:")
    yield Result(
        f"delivery: memory at its peak while it holds {HELD_MIB} MiB, above its start", (peak - before) / 1e6, "MB",
        "spool_memory_high_bytes, and what may be read back", (LIMIT_BYTES + READ_BACK_BYTES) / 1e6,
        goal=1.25, goal_kind="ratio-most",
    )  # fmt: skip


def _put(server: S3Server, name: str, file_bytes: int) -> float:
    """Connections as many as delivery has writers; obstore decides when it uploads in parts."""
    import obstore
    from obstore.store import S3Store

    environment = server.environment()
    store = S3Store(
        BUCKET,
        endpoint=server.endpoint,
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment["AWS_REGION"],
        client_options={"allow_http": True},
    )
    body = os.urandom(file_bytes)
    files = max(1, UPLOAD_MIB * MIB // file_bytes)
    start = time.perf_counter()
    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(obstore.put, store, f"bare/{name}/{number}", body) for number in range(files)]:
            done.result()
    return files * file_bytes / (time.perf_counter() - start) / 1e6


class _Delivery:
    def __init__(self, process: subprocess.Popen[str], client: Client, keeper: MemoryKeeper) -> None:
        self._process = process
        self._client = client
        self._incarnation = str(client.call("begin_run", changefeed=CHANGEFEED, run="r")["incarnation"])
        keeper.begin_run("r")
        self._entry = 0
        self._body = os.urandom(PAYLOAD_BYTES)

    def deliver(self, amount: int) -> float:
        """MB/s from the publish to the end of the flush."""
        first = self._entry
        payloads = []
        for number in range(amount // PAYLOAD_BYTES):
            payloads.append(self._payload(f"t{number % TABLES}"))
            self._entry += 1
        named = stage(self._client, "r", first, self._entry - 1, payloads)
        start = time.perf_counter()
        self._client.call("publish", changefeed=CHANGEFEED, run="r", incarnation=self._incarnation, ranges=[named])
        self._client.call("flush", changefeed=CHANGEFEED, timeout_seconds=_TIMEOUT_SECONDS)
        return amount / (time.perf_counter() - start) / 1e6

    def _payload(self, table: str) -> Payload:
        return replace(data_payload(table, self._entry, self._entry), body=self._body)

    def resident(self, field: str) -> int:
        with Path(f"/proc/{self._process.pid}/status").open() as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


@contextmanager
def a_delivery(directory: Path, server: S3Server, file_bytes: int, **limits: Any) -> Iterator[_Delivery]:
    (directory / "run").mkdir(parents=True)
    keeper = MemoryKeeper()
    control = Server(socket_path(directory / "run", "control"), keeper.handlers())
    url = f"s3://{BUCKET}/{directory.name}"
    sink = {"url": url, "format": "canal-json", "flush": {"size": file_bytes, "every": 600}}
    settings = {
        "state_dir": str(directory), "log_uuid": "bench", "writers": WRITERS, "changefeeds": {CHANGEFEED: sink}, **limits,
    }  # fmt: skip
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    with (directory / "log").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.delivery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**os.environ, **server.environment(), "PYTHONPATH": path},
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        process.stdout.readline()  # it listens
        client = Client(socket_path(directory / "run", "delivery"), timeout_seconds=_TIMEOUT_SECONDS)
        yield _Delivery(process, client, keeper)
        client.close()
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        control.close()
