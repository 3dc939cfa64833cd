"""python-mysql-replication, reading one binlog file of a server and the values of its rows.

Runs in its own environment (tools/components/decoders.py), as `python bench/binlog/mysql_replication_peer.py < settings.json`:
host, port, user, password, file, rows (how many to read). Prints JSON: rows, and the CPU seconds of reading them.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent


def main() -> None:
    settings: dict[str, Any] = json.load(sys.stdin)
    connection = {key: settings[key] for key in ("host", "port", "user", "password")}
    stream = BinLogStreamReader(
        connection_settings=connection,
        server_id=7002,
        log_file=settings["file"],
        log_pos=4,
        resume_stream=True,
        blocking=False,
        is_mariadb=True,
        only_events=[WriteRowsEvent],
    )
    rows = 0
    began = time.process_time()
    for event in stream:
        rows += len(event.rows)
        if rows >= settings["rows"] or stream.log_file != settings["file"]:
            break
    seconds = time.process_time() - began
    stream.close()
    print(json.dumps({"rows": rows, "seconds": seconds}))


if __name__ == "__main__":
    main()
