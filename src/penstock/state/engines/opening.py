"""Opens a state engine by its name."""

from __future__ import annotations

from pathlib import Path

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.log.position import Position
from penstock.state.engines.checkpointed import EngineOptions
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.layered import MemoryEngine
from penstock.state.engines.native.engine import NativeEngine
from penstock.state.engines.native.manifest import generation_of
from penstock.state.engines.refusals import typed_refusals
from penstock.state.settings import ENGINES, StateSettings


def open_engine(
    name: str,
    directory: Path | None,
    *,
    files: Files = REAL_FILES,
    clock: Clock = SYSTEM_CLOCK,
    settings: StateSettings = StateSettings(),  # noqa: B008 (frozen)
    read_only: bool = False,
    at: Position | None = None,
    verify: bool = False,
) -> StateEngine:
    """An engine with the state of the newest good checkpoint (at or below `at`), or empty.

    A damaged checkpoint is stepped over and listed in `damaged`. Without a directory the state is in memory alone.
    `read_only`: for a process that is not the owner; the engine takes changes, but writes no checkpoint and changes no
    file. It is the one that wrote the checkpoints, whatever `name` says: the owner chooses, and may have written its first
    one just now. `verify`: every byte of a checkpoint is read before it counts as good. An owner that opens with `at` drops the
    checkpoints above it. Where the system refuses to open a file, `Unavailable` or `StorageFailed` says so: that is no
    damage.
    """
    if name not in ENGINES:
        raise BadInput(f"there is no state engine {name!r}", hint=f"there are: {', '.join(ENGINES)}")
    if directory is None:
        return MemoryEngine()
    with typed_refusals(directory):
        written_by = _written_by(directory, files)
        if read_only:
            name = next(iter(written_by), name)
        _refuse_other_engine(name, directory, written_by)
        options = EngineOptions(directory, files, clock, settings, read_only, at, verify)
        if name == "rocksdb":
            from penstock.state.engines.rocksdb.engine import RocksEngine  # here, because rocksdict is optional

            return RocksEngine(options)
        return NativeEngine(options)


def _refuse_other_engine(name: str, directory: Path, written_by: list[str]) -> None:
    """Raises `BadInput` where the other engine wrote this state: its checkpoints would be passed over in silence."""
    for other in written_by:
        if other != name:
            raise BadInput(
                f"the state in {directory} was written by the engine {other!r}, not by {name!r}",
                hint=f"open it with engine {other!r}; `restore_from_snapshot` moves it to another directory",
            )


def _written_by(directory: Path, files: Files) -> list[str]:
    """The engines that have a checkpoint in the directory."""
    native = any(generation_of(file) is not None for file in files.list(directory))
    rocksdb = any(file.startswith("checkpoint-") for file in files.list(directory / "rocksdb"))
    return [name for name, there in (("native", native), ("rocksdb", rocksdb)) if there]
