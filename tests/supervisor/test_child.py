"""The log file of a child."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.supervisor import child


def test_the_log_of_a_child_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert child.LOG_BYTES_MAX > 1 << 20
    monkeypatch.setattr(child, "LOG_BYTES_MAX", 1000)
    log = child._LimitedLog(tmp_path / "capture.log")
    for number in range(100):
        log.write(b"line %05d of the log\n" % number)
    log.close()
    assert (tmp_path / "capture.log").stat().st_size <= 1000
    assert (tmp_path / "capture.log.1").stat().st_size <= 1000
    assert (tmp_path / "capture.log").read_bytes().endswith(b"line 00099 of the log\n")
