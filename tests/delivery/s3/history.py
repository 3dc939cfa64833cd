"""What a reader of the bucket could have seen at any moment, checked put by put, as an S3 server did them."""

from __future__ import annotations

import json
import threading
from pathlib import PurePosixPath

from penstock.delivery.storage.layout import file_number
from tests.delivery.rig import Row
from tests.delivery.s3.proxy import Exchange


class History:
    """`see` is the proxy's `on_done`. It only collects: an error in one of the proxy's threads would be nobody's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.puts: list[tuple[str, bytes]] = []  # that the server has done, in order

    def see(self, exchange: Exchange) -> None:
        if exchange.stored:
            with self._lock:
                self.puts.append((exchange.name, exchange.body))

    def check(self, rows: list[Row], prefix: str) -> None:
        """Each data file is put once; an index goes up by one, to a file that is there; a schema file is there before
        the data of its version, and after it nothing older of its table changes; `metadata` never goes back, and
        is never ahead of what counts."""
        data: dict[str, bytes] = {}
        schemas: dict[str, bytes] = {}
        named: dict[PurePosixPath, int] = {}
        newest: dict[str, int] = {}  # version by table
        visible: set[bytes] = set()
        checkpoint = 0
        waiting = sorted((row.commit_ts, row.line) for row in rows if not row.ddl)
        for full_name, body in self.puts:
            name = full_name.removeprefix(f"{prefix}/")
            path = PurePosixPath(name)
            if path.name.startswith("schema_"):
                if name in schemas:
                    assert schemas[name] == body, f"{name} has changed"
                    continue
                schemas[name] = body
                table, version = path.parts[1], int(path.name.split("_")[1])
                assert version >= newest.get(table, 0), f"{name} after version {newest[table]}"
                newest[table] = version
            elif path.name.endswith(".index"):
                directory, number = path.parent.parent, file_number(body.decode())
                file = f"{directory}/{body.decode().strip()}"
                assert file in data, f"{name} names {file}, which is not there"
                assert number == named.get(directory, 0) + 1, f"{name}: {number} after {named.get(directory, 0)}"
                assert int(path.parts[2]) == newest[path.parts[1]], f"{name} names rows of an old version"
                named[directory] = number
                visible.update(data[file].splitlines(keepends=True))
            elif path.name.startswith("CDC"):
                assert name not in data, f"{name} was put twice"
                assert int(path.parts[2]) == newest.get(path.parts[1]), (
                    f"{name} without its schema file, or of an old version"
                )
                data[name] = body
            elif name == "metadata":
                now = int(json.loads(body)["checkpoint-ts"])
                assert now >= checkpoint, f"checkpoint-ts went back from {checkpoint} to {now}"
                checkpoint = now
                while waiting and waiting[0][0] <= checkpoint:
                    assert waiting[0][1] in visible, f"checkpoint-ts {checkpoint} is ahead of {waiting[0][1]!r}"
                    waiting.pop(0)
