"""The `end` file in the hands of several threads."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.files import RealFiles
from penstock.log.frames.end_file import EndFile


def test_a_handle_is_not_closed_while_another_thread_checks_the_fence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFiles()
    EndFile.create(files, tmp_path / "end")
    end_file = EndFile.open(files, tmp_path / "end", writable=True)
    end_file.fence(1)
    handle: Any = end_file._file
    reading, go_on, closed = threading.Event(), threading.Event(), threading.Event()
    read_at, close = handle.read_at, handle.close

    def slow(offset: int, size: int) -> bytes:
        reading.set()
        go_on.wait(5)
        assert not closed.is_set()
        return bytes(read_at(offset, size))

    def told() -> None:
        closed.set()
        close()

    monkeypatch.setattr(handle, "read_at", slow)
    monkeypatch.setattr(handle, "close", told)
    failures: list[BaseException] = []

    def check() -> None:
        try:
            end_file.check()
        except BaseException as error:
            failures.append(error)

    checker = threading.Thread(target=check)
    checker.start()
    assert reading.wait(5)
    reopener = threading.Thread(target=end_file.reopen, args=(files,))
    reopener.start()
    assert not closed.wait(0.1)
    go_on.set()
    checker.join(5)
    reopener.join(5)
    assert closed.is_set()
    assert not failures
    end_file.check()
    end_file.close()
