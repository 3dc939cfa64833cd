"""Run as a process by test_kill.py: appends until it is killed, while its sealed ledgers move to the object store."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from penstock.log import Log, LogSettings


def settings(url: str) -> LogSettings:
    return LogSettings(
        ledger_entries_max=20,
        preallocate_bytes=1 << 16,
        offload_url=url,
        offload_threshold_bytes=0,
        offload_deletion_lag_seconds=0,
        offload_part_bytes=1 << 17,
    )


def payload(number: int) -> bytes:
    return b"%d:" % number + bytes([number % 251]) * (number * 3701 % 30_000)


def main(directory: Path, url: str) -> None:
    log = Log.open(directory, settings(url))
    reader = log.reader()
    number = reader.count(reader.previous(reader.first) or reader.first._replace(entry_id=-1), log.end())
    while True:
        last = log.append_many([payload(number + n) for n in range(5)]).result().last
        number += 5
        sys.stdout.write(f"{number} {last}\n")
        sys.stdout.flush()
        time.sleep(0.002)  # the offload keeps up


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
