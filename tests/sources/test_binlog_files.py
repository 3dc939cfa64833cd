"""Binlog files on disk: read whole, followed while they grow, and refused where they are not what they should be."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from penstock.binlog.errors import BadEvent
from penstock.binlog.events import split_events
from penstock.clock import ManualClock
from penstock.sources.binlog_files import BinlogFilesSource
from penstock.sources.demo.plan import Plan
from penstock.sources.demo.stream import chunk_file
from penstock.sources.position import SourcePosition
from penstock.sources.settings import BinlogFilesSettings as Settings
from penstock.sources.source import Chunk, SourceError
from tests.capture.running import SIZE, capture, expected_events, logged_events
from tests.support.bounded import bounded


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


def test_what_a_server_writes_right_before_it_turns_to_the_next_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the reader was at the file's end, and before it looks for the next one."""
    first, second, *more = write(tmp_path / "bin")
    contents = {path: path.read_bytes() for path in (first, second)}
    for path in (second, *more):
        path.unlink()
    sizes = split_events(contents[first][4:]).size.tolist()
    cut = 4 + sum(sizes[: len(sizes) // 2])
    first.write_bytes(contents[first][:cut])
    look = BinlogFilesSource._after

    def late(self: BinlogFilesSource, path: Path) -> Path | None:
        for one, content in contents.items():
            one.write_bytes(content)
        return look(self, path)

    monkeypatch.setattr(BinlogFilesSource, "_after", late)
    found: dict[str, bytes] = {}
    reader = source(tmp_path / "bin", follow=True, read_bytes=1 << 20).open(SourcePosition(first.name, 4))
    name = ""
    for chunk in reader:
        if chunk.idle:
            break
        name = chunk.file or name
        found[name] = found.get(name, b"") + chunk.data.tobytes()
    assert found[first.name] == contents[first][4:]
    assert found[second.name].endswith(contents[second][-100:])


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


def test_sizes_that_no_event_has_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    """The size of an event is four bytes that anyone may write: nothing is allocated because of it."""
    (good, *_) = write(tmp_path / "bin")
    raw = bytearray(good.read_bytes())
    format_bytes = int.from_bytes(raw[13:17], "little")
    second = 4 + format_bytes
    for at, kind in ((4, "FORMAT_DESCRIPTION"), (second, "")):
        damaged = bytearray(raw)
        damaged[at + 9 : at + 13] = (0xFFFFFFF0).to_bytes(4, "little")
        path = tmp_path / f"{at}" / "bin.000001"
        path.parent.mkdir()
        path.write_bytes(damaged + b"\0" * (1 << 20))
        with (
            bounded(mib=8, cpu_seconds=5),
            pytest.raises(BadEvent, match=rf"bin\.000001: .*offset {at} \({kind}") as told,
        ):
            list(source(path.parent).open(SourcePosition("bin.000001", 4)))
        assert told.value.file == str(path)


def test_a_large_event_is_read_in_linear_time(tmp_path: Path) -> None:
    (first, *_) = write(tmp_path / "bin")
    head = first.read_bytes()
    head = head[: 4 + int.from_bytes(head[13:17], "little")]
    seconds = []
    for mib in (4, 32):
        size = mib << 20
        path = tmp_path / f"{mib}" / "bin.000001"
        path.parent.mkdir()
        path.write_bytes(head + struct.pack("<IBIIIH", 1, 30, 1, size, 0, 0) + b"\0" * (size - 19))
        began = time.process_time()
        chunks = list(source(path.parent).open(SourcePosition("bin.000001", 4)))
        seconds.append(time.process_time() - began)
        assert max(len(chunk.data) for chunk in chunks) == size
    assert seconds[1] < 24 * max(0.02, seconds[0])
