"""Opens a state engine by its name."""

from __future__ import annotations

from pathlib import Path

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.log.position import Position
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.layered import MemoryEngine
from penstock.state.engines.native import NativeEngine
from penstock.state.engines.native.manifest import generation_of
from penstock.state.settings import StateSettings

ENGINES = ("native", "rocksdb")


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
    """The state at its newest good checkpoint (at or below `at`), or empty; bad ones are stepped over into `damaged`.

    Without a directory it is held in memory alone. `read_only`: beside the owner; takes changes, writes no checkpoint,
    touches no file. `verify`: reads every byte of a checkpoint before it is called good.
    """
    if name not in ENGINES:
        raise BadInput(f"there is no state engine {name!r}", hint=f"there are: {', '.join(ENGINES)}")
    if directory is None:
        return MemoryEngine()
    _refuse_other(name, directory, files)
    options = {"files": files, "clock": clock, "settings": settings, "read_only": read_only, "at": at, "verify": verify}
    if name == "rocksdb":
        from penstock.state.engines.rocksdb.engine import RocksEngine

        return RocksEngine(directory, **options)  # type: ignore[arg-type]
    return NativeEngine(directory, **options)  # type: ignore[arg-type]


def _refuse_other(name: str, directory: Path, files: Files) -> None:
    """State that the other engine wrote is refused by its name: its checkpoints would be passed over in silence."""
    names = files.list(directory)
    native = any(generation_of(file) is not None for file in names)
    rocksdb = any(file.startswith("checkpoint-") for file in files.list(directory / "rocksdb"))
    for other, there in (("native", native), ("rocksdb", rocksdb)):
        if there and other != name:
            raise BadInput(
                f"the state in {directory} was written by the engine {other!r}, not by {name!r}",
                hint=f"open it with engine {other!r}; `restore_from_snapshot` moves it to another directory",
            )
