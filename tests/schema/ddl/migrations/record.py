"""Runs the statements of the files again, on a server of its own, and writes what became of the tables."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.schema.ddl.server import described
from tools.components.mariadb import MariaDbServer

_DATABASE = "app"


def main(tools: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch, MariaDbServer(Path(scratch)) as server:
        connection = server.connect()
        for tool in tools:
            path = Path(__file__).parent / f"{tool}.jsonl"
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE OR REPLACE DATABASE {_DATABASE} CHARACTER SET utf8mb4")
                cursor.execute(f"USE {_DATABASE}")
            lines = [_record(connection, json.loads(line)["sql"]) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
            print(f"{tool}: {len(lines)} statements")


def _record(connection: Any, sql: str) -> dict[str, Any]:
    before = described(connection, _DATABASE)
    with connection.cursor() as cursor:
        cursor.execute(sql)
    after = described(connection, _DATABASE)
    changed = {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)}
    return {"sql": sql, "tables": dict(sorted(changed.items()))}


if __name__ == "__main__":
    main(sys.argv[1:])
