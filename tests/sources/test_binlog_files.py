"""Binlog files on disk: read whole, followed while they grow, and refused where they are not what they should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.sources.binlog_files import BinlogFilesSource
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from penstock.sources.position import SourcePosition
from penstock.sources.settings import BinlogFilesSettings as Settings
from penstock.sources.source import Chunk, SourceError
from tests.capture.running import SIZE, capture, expected_events, logged_events


def write(directory: Path) -> list[Path]:
    directory.mkdir(exist_ok=True)
    for number in range(Plan(5, SIZE).chunks):
        file = chunk_file(Plan(5, SIZE), number)
        (directory / file.name).write_bytes(file.data.tobytes())
    return sorted(directory.iterdir())


def source(path: Path, *, follow: bool = False, read_bytes: int = 1000) -> BinlogFilesSource:
    settings = Settings(type="binlog-files", path=path, follow=follow)
    return BinlogFilesSource(settings, ManualClock(), read_bytes)


@pytest.mark.parametrize("pattern", ["", "demo-bin.*"])
def test_a_directory_or_a_glob_is_read_whole(tmp_path: Path, pattern: str) -> None:
    write(tmp_path / "bin")
    (tmp_path / "bin" / "demo-bin.index").write_text("demo-bin.000001\n")
    path = tmp_path / "bin" / pattern if pattern else tmp_path / "bin"
    assert capture(tmp_path / "log", source(path))
    assert logged_events(tmp_path / "log") == expected_events()


def test_a_growing_file_is_followed(tmp_path: Path) -> None:
    files = write(tmp_path / "bin")
    whole = files[0].read_bytes()
    for later in files[1:]:
        later.unlink()
    files[0].write_bytes(whole[:3000])
    found = bytearray()
    reader = source(tmp_path / "bin", follow=True).open(SourcePosition(files[0].name, 4))
    idle = 0
    for chunk in reader:
        if chunk.idle:
            idle += 1
            files[0].write_bytes(whole[: 3000 + 7000 * idle])
            if 3000 + 7000 * idle > len(whole) + 7000:
                break
        elif not _is_format(chunk):
            assert chunk.start == 4 + 252 + len(found)
            found += chunk.data.tobytes()
    assert bytes(found) == whole[4 + 252 :]


def _is_format(chunk: Chunk) -> bool:
    return chunk.start == 4 and int(chunk.data[4]) == 15


def test_what_is_not_a_binlog_or_is_cut_or_gone_is_refused(tmp_path: Path) -> None:
    files = write(tmp_path / "bin")
    with pytest.raises(SourceError, match=r"bin\.000099 is gone .oldest .*demo-bin.000001"):
        next(source(tmp_path / "bin").open(SourcePosition("bin.000099", 4)))
    files[-1].write_bytes(files[-1].read_bytes()[:-3])
    with pytest.raises(SourceError, match="middle of an event"):
        capture(tmp_path / "log", source(tmp_path / "bin"))
    files[0].write_bytes(b"something else entirely, and long enough")
    with pytest.raises(SourceError, match="not a binlog file"):
        capture(tmp_path / "log2", source(tmp_path / "bin"))
    with pytest.raises(SourceError, match="no binlog files"):
        source(tmp_path / "nothing").begin(1)
