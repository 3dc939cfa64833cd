"""Every byte of small checkpoint files is damaged, and every file cut: nothing wrong is ever served, and what parity can
mend is mended."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import Corruption, NotSupported
from penstock.files.memory import MemoryFiles
from penstock.log import Position, StateChange
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.native import format as run_format
from penstock.state.engines.native import manifest as manifests
from penstock.state.engines.native.pages import PageLayout
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


def spoil(raw: bytearray, engine: StateEngine, path: Path) -> None:
    """Flips a bit of the first page of a run, and one of the page that could rebuild it."""
    names = {run.path: run.name for checkpoint in engine._checkpoints.kept for run in checkpoint.runs}  # type: ignore[attr-defined]
    raw[100] ^= 4
    raw[PageLayout(names[path].data_bytes).parity_at + 3] ^= 4


def examine(files: MemoryFiles, states: dict[Position | None, Content], path: Path, *, scrub: bool = True) -> bool:
    """What an owner does: opens and reads; then scrubs, and opens again. Returns whether the newest state was there all
    the time."""
    newest = max(position for position in states if position is not None)
    engine = opened(files)
    whole = not engine.damaged
    if whole:
        assert engine.position == newest
        try:
            assert content(engine) == states[newest]
        except Corruption as error:
            assert str(path) in str(error)
            whole = False
            engine.close()
            engine = opened(files, verify=True)
    if not whole:
        assert any(Path(finding.file) == path for finding in engine.damaged)
    assert content(engine) == states[engine.position]
    assert any(Path(finding.file) == path for finding in engine.verify())
    if whole and scrub:
        assert any(Path(finding.file) == path for finding in engine.scrub(lambda _: None))
        engine.mend()
        assert not list(engine.verify())
        assert content(engine) == states[newest]
        engine.close()
        engine = opened(files, verify=True)
        assert (engine.position, content(engine), engine.damaged) == (newest, states[newest], ())
    engine.close()
    return whole


@pytest.mark.parametrize("part", range(4))
def test_every_flip_is_found_and_mended(machine: tuple[MemoryFiles, dict[Position | None, Content]], part: int) -> None:
    """The newest state stays there, whichever bit of whichever file it is."""
    files, states = machine
    for path in sorted(files._names):
        raw = files._names[path].content
        for offset in range(part, len(raw), 4):
            if raw[offset] == ord(" ") == raw[offset - 1] and offset % 256 != part:
                continue  # between the copies of a manifest; a few of these places are enough
            copy = damaged(files, path, offset, offset // 4 % 8)
            assert examine(copy, states, path, scrub=offset % 16 == part)


def test_flipped_bits_of_large_files_are_found_where_they_matter() -> None:
    """Files of many pages: pages that the open does not need are checked, and rebuilt, when they are read."""
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
    for _ in range(150):
        path = chosen.choice(sorted(p for p in files._names if p.suffix == ".run"))
        offset = chosen.randrange(len(files._names[path].content))
        assert examine(damaged(files, path, offset, chosen.randrange(8)), states, path)


def test_damage_in_one_place_is_mended_whatever_it_is() -> None:
    """A ninth of the pages of a run, zeroed, filled with noise or cut off."""
    files = MemoryFiles()
    engine = opened(files)
    engine.apply([StateChange(1, b"key %04d" % n, b"%d" % n * 30) for n in range(1500)])
    states: dict[Position | None, Content] = {
        at(0): after({}, [StateChange(1, b"key %04d" % n, b"%d" % n * 30) for n in range(1500)])
    }
    engine.write(engine.freeze(), at(0))
    layout = PageLayout(engine._checkpoints.kept[0].runs[0].name.data_bytes)  # type: ignore[attr-defined]
    engine.close()
    (path,) = [path for path in files._names if path.suffix == ".run"]
    assert layout.parity >= 5
    size = (layout.parity - 1) * 4096 + 1  # however it lies, it touches each stripe at most once
    chosen = random.Random(3)
    for offset in [*range(0, layout.file_bytes - size, 3000), layout.file_bytes - size]:
        for how in ("zeros", "noise"):
            copy = files.kill()
            copy._names[path].content[offset : offset + size] = (
                bytes(size) if how == "zeros" else chosen.randbytes(size)
            )
            assert examine(copy, states, path), (offset, how)
    for cut in (1, 100, 5000, layout.file_bytes - layout.parity_at):
        copy = files.kill()
        del copy._names[path].content[-cut:]
        assert examine(copy, states, path), cut


def test_two_damages_in_one_stripe_are_named() -> None:
    files = MemoryFiles()
    engine = opened(files)
    engine.apply([StateChange(1, b"key %04d" % n, b"%d" % n * 30) for n in range(1500)])
    engine.write(engine.freeze(), at(0))
    layout = PageLayout(engine._checkpoints.kept[0].runs[0].name.data_bytes)  # type: ignore[attr-defined]
    engine.close()
    (path,) = [path for path in files._names if path.suffix == ".run"]
    raw = files._names[path].content
    raw[2 * 4096 + 5] ^= 1
    raw[(2 + layout.parity) * 4096 + 70] ^= 1
    engine = opened(files)
    with pytest.raises(Corruption, match=rf"the page at 8192 .*other bad pages at {(2 + layout.parity) * 4096}"):
        content(engine)
    with pytest.raises(Corruption, match="cannot be rebuilt"):
        engine.scrub(lambda _: None)
        engine.mend()
    assert [finding.offset for finding in engine.verify()] == [8192, (2 + layout.parity) * 4096]
    engine.close()
    assert [Path(finding.file) for finding in opened(files, verify=True).damaged] == [path]


def test_every_cut_file_is_found(machine: tuple[MemoryFiles, dict[Position | None, Content]]) -> None:
    """A manifest cut within its first copy is stepped over; everything else is mended."""
    files, states = machine
    for path in sorted(files._names):
        raw = bytes(files._names[path].content)
        copy_bytes = len(raw[: len(raw) // 2].rstrip()) + 1 if path.suffix == ".json" else 0
        for size in range(len(raw)):
            if raw[size - 1 : size + 1] == b"  " and size % 256:
                continue  # between the copies of a manifest; a few of these places are enough
            whole = examine(damaged(files, path, size, None), states, path, scrub=size % 16 == 0)
            assert whole or path.suffix == ".run" or size < copy_bytes


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
            raw = copy._names[path].content
            raw[5] ^= 1
            raw[len(raw) // 2 + 5] ^= 1
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
    spoil(files._names[first].content, engine, first)
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
    spoil(raw, engine, path)
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
