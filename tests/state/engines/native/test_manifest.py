"""A manifest survives one bad page, wherever it is: it may be the last checkpoint of a trimmed log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StorageFailed
from penstock.files.memory import MemoryFiles
from penstock.log import Position
from penstock.state.engines.native import manifest as manifests
from penstock.state.engines.native.format import PAGE_BYTES, BadRun
from penstock.state.engines.native.run import RunName

DIRECTORY = Path("/state")


def manifest_of(runs: int) -> manifests.CheckpointManifest:
    names = tuple(RunName(id=one, bytes=9000, data_bytes=8000, footer_crc=1 << 31) for one in range(1, runs + 1))
    return manifests.CheckpointManifest(7, Position(3, 41), 1_700_000_000_000, 1234, 0.01, names)


def written(manifest: manifests.CheckpointManifest) -> tuple[MemoryFiles, Path]:
    files = MemoryFiles()
    files.make_directory(DIRECTORY)
    manifests.write(files, DIRECTORY, manifest)
    return files, DIRECTORY / manifest.file


class BadSectors(MemoryFiles):
    """Reads that touch one page fail."""

    page: int

    def open(self, path: Path, *, writable: bool = False) -> Any:
        file = super().open(path, writable=writable)
        read_at = file.read_at

        def failing(offset: int, size: int) -> bytes:
            if offset < (self.page + 1) * PAGE_BYTES and offset + size > self.page * PAGE_BYTES:
                raise OSError(5, "Input/output error")
            return read_at(offset, size)

        file.read_at = failing  # type: ignore[method-assign]
        return file


@pytest.mark.parametrize("runs", [0, 1, 60])  # of one page in each copy, and of several
def test_any_one_page_may_be_lost(runs: int) -> None:
    manifest = manifest_of(runs)
    files, path = written(manifest)
    raw = bytes(files._names[path].content)
    assert len(raw) % (2 * PAGE_BYTES) == 0
    assert manifests.find_damage(files, path, manifest) is None
    for page in range(len(raw) // PAGE_BYTES):
        for spoiled in (bytes(PAGE_BYTES), b"\xff" * PAGE_BYTES, raw[:1000] * 5):
            start = page * PAGE_BYTES
            files._names[path].content[:] = raw[:start] + spoiled[:PAGE_BYTES] + raw[start + PAGE_BYTES :]
            assert manifests.read(files, path) == manifest
            damage = manifests.find_damage(files, path, manifest)
            assert damage is not None
            assert start <= damage.offset < start + PAGE_BYTES
        unreadable = BadSectors()
        unreadable._names = files._names
        files._names[path].content[:] = raw
        unreadable.page = page
        assert manifests.read(unreadable, path) == manifest
        assert manifests.find_damage(unreadable, path, manifest) is not None


@pytest.mark.parametrize("runs", [1, 60])
def test_an_end_that_was_cut_off_leaves_the_first_copy(runs: int) -> None:
    manifest = manifest_of(runs)
    files, path = written(manifest)
    raw = bytes(files._names[path].content)
    content = len(raw[: len(raw) // 2].rstrip()) + 1
    for size in (*range(content, content + 20), *range(content + 20, len(raw), 509), len(raw) - 1):
        files._names[path].content[:] = raw[:size]
        assert manifests.read(files, path) == manifest
        assert manifests.find_damage(files, path, manifest) is not None
    for size in range(0, content, 11):
        files._names[path].content[:] = raw[:size]
        with pytest.raises(BadRun):
            manifests.read(files, path)


def test_damage_in_both_copies_is_damage() -> None:
    files, path = written(manifest_of(1))
    content = files._names[path].content
    content[10] ^= 1
    content[len(content) // 2 + 50] ^= 1
    with pytest.raises(BadRun, match="checksum"):
        manifests.read(files, path)


def test_a_manifest_that_the_disk_did_not_keep_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything that it replaces is removed."""
    create = MemoryFiles.create

    def lying(self: MemoryFiles, path: Path) -> Any:
        file = create(self, path)
        append = file.append
        file.append = lambda buffers: append([bytes(len(buffer)) for buffer in buffers])  # type: ignore[method-assign]
        return file

    monkeypatch.setattr(MemoryFiles, "create", lying)
    with pytest.raises(StorageFailed, match="not what was written"):
        written(manifest_of(1))
