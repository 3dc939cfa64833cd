"""Prints the changes of a table as python-mysql-replication reads them, a JSON array a line. Runs in its environment:

python mysql_replication.py PORT USER PASSWORD FILE POSITION TABLE
"""

from __future__ import annotations

import datetime
import decimal
import json
import sys
from typing import Any

from pymysqlreplication import BinLogStreamReader  # type: ignore[import-not-found]
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent  # type: ignore[import-not-found]


def text(value: Any) -> Any:
    """As `printed.py` prints it."""
    if isinstance(value, datetime.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, datetime.timedelta):
        micros = value // datetime.timedelta(microseconds=1)
        seconds, rest = divmod(abs(micros), 1_000_000)
        sign = "-" if micros < 0 else ""
        return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, set):
        return ",".join(sorted(value))
    return value if value is None or isinstance(value, float) else str(value)


def image(values: dict[str, Any]) -> dict[str, Any]:
    return {name: text(value) for name, value in values.items()}


def main() -> None:
    port, user, password, file, position, table = sys.argv[1:]
    stream = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": int(port), "user": user, "passwd": password},
        server_id=4711,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_tables=[table],
        log_file=file,
        log_pos=int(position),
        resume_stream=True,
    )
    for event in stream:
        for row in event.rows:
            if isinstance(event, UpdateRowsEvent):
                found = ["U", image(row["before_values"]), image(row["after_values"])]
            elif isinstance(event, WriteRowsEvent):
                found = ["I", None, image(row["values"])]
            else:
                found = ["D", image(row["values"]), None]
            print(json.dumps(found))


if __name__ == "__main__":
    main()
