"""An append that depends on another one (`after`): where that failed it fails too, though the log goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError, StorageFailed
from penstock.log import Log, LogSettings
from penstock.log.ledgers.local import LocalLedger
from tests.support.waiting import LIMIT_SECONDS


def test_what_stands_on_a_failed_append_fails_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = LogSettings(ledger_switches_max=1)
    log = Log.open(tmp_path / "log", settings)
    log.append(b"before").result()
    add = LocalLedger.add
    begun, queued = threading.Event(), threading.Event()
    calls = 0

    def failing(self: LocalLedger, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= settings.ledger_switches_max + 1:
            begun.set()
            assert queued.wait(LIMIT_SECONDS)
            raise StorageFailed("no disk for a moment")
        return add(self, *arguments, **options)

    monkeypatch.setattr(LocalLedger, "add", failing)
    first = log.append(b"fails")
    assert begun.wait(LIMIT_SECONDS)
    second = log.append(b"stands on it", after=first)
    third = log.append(b"stands on that", after=second)
    other = log.append(b"stands alone")
    fourth = log.append(b"stands on what is there", after=other)
    queued.set()
    for pending in (first, second, third):
        with pytest.raises(PenstockError):
            pending.result()
    assert other.result() < fourth.result()
    later = log.append(b"comes later and stands on what failed", after=third)
    with pytest.raises(PenstockError):
        later.result()
    reader = log.reader()
    assert [bytes(entry.data) for entry in reader.read(reader.first, reader.end())] == [
        b"before",
        b"stands alone",
        b"stands on what is there",
    ]
    log.close()
