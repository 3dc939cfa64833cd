"""Every single bit of small checkpoint files is flipped, and every file cut: nothing wrong is ever served."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import Corruption, NotSupported
from penstock.files.memory import MemoryFiles
from penstock.log import Position, StateChange
from penstock.state.engines.native import format as run_format
from penstock.state.engines.native import manifest as manifests
from penstock.state.engines.opening import open_engine
from penstock.state.settings import StateSettings
from tests.state.engines.native.memory import DIRECTORY, Content, after, at, batch, content, opened

_KEPT_APART = StateSettings(merge_in_background=False, merge_ratio=1e9, merge_runs_max=99, spare_ratio_max=1e9)


@pytest.fixture(scope="module")
def machine() -> tuple[MemoryFiles, dict[Position | None, Content]]:
    """Files with two checkpoints on three runs, and the state at each of them."""
    files = MemoryFiles()
    engine = opened(files, settings=_KEPT_APART)
    model: Content = {}
    states: dict[Position | None, Content] = {None: {}}
    for number in range(3):
        changes = [change for change in batch(number) if len(change.value or b"") < 1000]
        engine.apply(changes)
        model = after(model, changes)
        engine.write(engine.freeze(), at(number))
        states[at(number)] = model
    engine.close()
    assert len([name for name in files.list(DIRECTORY) if name.startswith("run-")]) == 3
    return files, states


def damaged(files: MemoryFiles, path: Path, offset: int, bit: int | None) -> MemoryFiles:
    copy = files.kill()
    node = copy._names[path]
    if bit is None:
        del node.content[offset:]
    else:
        node.content[offset] ^= 1 << bit
    return copy


def examine(files: MemoryFiles, states: dict[Position | None, Content], path: Path) -> str:
    """What an owner does: opens, reads, and after damage opens again with every byte read. Returns where it was
    found."""
    engine = opened(files)
    if engine.damaged:
        assert any(Path(finding.file) == path for finding in engine.damaged)
        found = "open"
    else:
        found = "read"
        try:
            assert content(engine) == states[engine.position]
        except Corruption as error:
            assert str(path) in str(error)
        engine.close()
        engine = opened(files, verify=True)
        assert any(Path(finding.file) == path for finding in engine.damaged), "what verify=True must see"
    assert content(engine) == states[engine.position]
    assert any(Path(finding.file) == path for finding in engine.verify())
    engine.close()
    return found


@pytest.mark.parametrize("part", range(4))
def test_every_flipped_bit_is_found(machine: tuple[MemoryFiles, dict[Position | None, Content]], part: int) -> None:
    files, states = machine
    found: dict[str, int] = {}
    for path in sorted(files._names):
        for offset in range(part, len(files._names[path].content), 4):
            for bit in range(8):
                where = examine(damaged(files, path, offset, bit), states, path)
                found[where] = found.get(where, 0) + 1
    assert found["open"] > 3000
    assert "read" not in found, "files of one page are whole or not"


def test_flipped_bits_of_large_files_are_found_where_they_matter() -> None:
    """Files of many pages: pages that the open does not need are checked when they are read."""
    files = MemoryFiles()
    engine = opened(files, settings=_KEPT_APART)
    states: dict[Position | None, Content] = {None: {}}
    model: Content = {}
    for entry in range(2):
        changes = [StateChange(1, b"%d key %04d" % (entry, n), b"%d" % n * 30) for n in range(400)]
        engine.apply(changes)
        engine.write(engine.freeze(), at(entry))
        states[at(entry)] = model = after(model, changes)
    engine.close()
    chosen = random.Random(8)
    found: dict[str, int] = {}
    for _ in range(150):
        path = chosen.choice(sorted(p for p in files._names if p.suffix == ".run"))
        offset = chosen.randrange(len(files._names[path].content))
        where = examine(damaged(files, path, offset, chosen.randrange(8)), states, path)
        found[where] = found.get(where, 0) + 1
    assert found["read"] > 100


def test_every_cut_file_is_found(machine: tuple[MemoryFiles, dict[Position | None, Content]]) -> None:
    files, states = machine
    for path in sorted(files._names):
        for size in range(len(files._names[path].content)):
            examine(damaged(files, path, size, None), states, path)


def test_a_missing_file_is_found(machine: tuple[MemoryFiles, dict[Position | None, Content]]) -> None:
    files, states = machine
    for path in sorted(files._names):
        copy = files.kill()
        del copy._names[path]
        engine = opened(copy)
        if path.suffix == ".run":
            assert [Path(finding.file) for finding in engine.damaged][:1] == [path]
        assert content(engine) == states[engine.position]


def test_no_good_checkpoint_is_reported(machine: tuple[MemoryFiles, dict[Position | None, Content]]) -> None:
    files, _ = machine
    copy = files.kill()
    for path in copy._names:
        if path.suffix == ".json":
            copy._names[path].content[5] ^= 1
    engine = opened(copy)
    assert engine.position is None
    assert len(engine.damaged) == 2, "not the silence of a state that never was"
    names = copy.list(DIRECTORY)
    engine.apply(batch(1))
    engine.close()
    assert copy.list(DIRECTORY) == names, "nothing is deleted before a new checkpoint is there"
    again = opened(copy)
    again.apply(batch(1))
    again.write(again.freeze(), at(9))
    again.close()
    healed = opened(copy)
    assert (healed.position, list(healed.damaged)) == (at(9), [])


def test_damage_under_a_merge_is_named_and_nothing_is_lost() -> None:
    files = MemoryFiles()
    engine = opened(files, settings=_KEPT_APART)
    for number in range(3):
        engine.apply(batch(number))
        engine.write(engine.freeze(), at(number))
    engine.close()
    first = DIRECTORY / "run-0000000000000001.run"
    files._names[first].content[100] ^= 4
    before = {path: bytes(node.content) for path, node in files._names.items()}
    engine = opened(files)
    with pytest.raises(Corruption, match="run-0000000000000001"):
        engine.compact()
    assert {path: bytes(node.content) for path, node in files._names.items()} == before
    engine.close()
    assert opened(files, verify=True).position is None


def test_damage_found_by_a_background_merge_stops_checkpoints(tmp_path: Path) -> None:
    engine = open_engine("native", tmp_path, settings=_KEPT_APART)
    for number in range(3):
        engine.apply(batch(number))
        engine.write(engine.freeze(), at(number))
    engine.close()
    path = tmp_path / "run-0000000000000001.run"
    raw = bytearray(path.read_bytes())
    raw[100] ^= 4
    path.write_bytes(raw)
    engine = open_engine("native", tmp_path, settings=StateSettings(merge_ratio=0.01))
    engine.apply(batch(3))
    engine.write(engine.freeze(), at(3))
    engine._merger.join()  # type: ignore[attr-defined]
    with pytest.raises(Corruption, match="run-0000000000000001"):
        engine.write(engine.freeze(), at(4))
    with pytest.raises(Corruption, match="run-0000000000000001"):
        engine.flush()
    engine.close()


def test_a_newer_version_is_refused_by_name(machine: tuple[MemoryFiles, dict[Position | None, Content]]) -> None:
    files, _ = machine
    copy = files.kill()
    path = max(p for p in copy._names if p.suffix == ".json")
    node = copy._names[path]
    line = bytes(node.content).split(b"\n")[0].replace(b'"version": 1', b'"version": 2')
    node.content[:] = b"%s\n%08x\n" % (line, manifests.google_crc32c.value(line))
    with pytest.raises(NotSupported, match=r"version 2 of a penstock state checkpoint is not known.*upgrade"):
        opened(copy)
    for parse, size, magic in (
        (run_format.parse_header, 64, b"PSC1"), (lambda raw: run_format.parse_footer(raw, 0), 128, b"PSCE"),
    ):  # fmt: skip
        raw = magic + b"\x02" + bytes(size - 9)
        raw += run_format.google_crc32c.value(raw).to_bytes(4, "little")
        with pytest.raises(NotSupported, match=r"version 2.*upgrade"):
            parse(raw)
