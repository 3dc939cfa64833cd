"""The `native` state engine. See engine.py for the contract, checkpoints.py for the order on the disk.

Three locks, taken in this order: `_merging` (one merge at a time), `_disk` (the directory and the list of checkpoints),
`_lock` of the layers. A merge computes under the first alone, so that checkpoints go on beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from penstock.clock import Clock
from penstock.errors import BadInput, Corruption, NotSupported
from penstock.files import Files
from penstock.log.position import Position
from penstock.state.engines.engine import CheckpointInfo, Finding, Frozen
from penstock.state.engines.layered import FrozenLayers, LayeredEngine
from penstock.state.engines.native import merging
from penstock.state.engines.native.checkpoints import Checkpoint, Checkpoints
from penstock.state.engines.native.format import Header
from penstock.state.engines.native.manifest import Manifest
from penstock.state.engines.native.run import Run, RunName, Runs
from penstock.state.engines.overlay import Layer, Stack, closed
from penstock.state.settings import StateSettings

Choose = Callable[[Sequence[Checkpoint]], tuple[Run, ...]]


class NativeEngine(LayeredEngine):
    name = "native"

    def __init__(
        self,
        directory: Path,
        *,
        files: Files,
        clock: Clock,
        settings: StateSettings,
        read_only: bool,
        at: Position | None,
        verify: bool,
    ) -> None:
        super().__init__(Runs(()))
        self._directory = directory
        self._files = files
        self._clock = clock
        self._settings = settings
        self._read_only = read_only
        self._disk = threading.Lock()
        self._merging = threading.Lock()
        self._merger: threading.Thread | None = None
        self._merge_error: BaseException | None = None
        self._checkpoints = Checkpoints(files, directory)
        if at is not None and not read_only:
            self._checkpoints.drop_after(at)
        self._checkpoints.load(at=at, count=1 if read_only else settings.checkpoints_kept, verify=verify)
        self._go_to(self._checkpoints.kept)

    @property
    def position(self) -> Position | None:
        return self._position

    @property
    def damaged(self) -> Sequence[Finding]:
        return tuple(self._checkpoints.damaged)

    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        """(1) the run of what changed; (2) the manifest; (3) readers change over; (4) what is no longer kept goes."""
        if isinstance(self._merge_error, Corruption):
            raise self._merge_error
        with self._disk:
            info = self._write(self._writable(frozen, position), position)
        self._retired.drain()
        if self._settings.merge_in_background:
            self._merge_later()
        else:
            self._merge_all_due()
        return info

    def _write(self, frozen: FrozenLayers, position: Position) -> CheckpointInfo:
        started = self._clock.monotonic()
        kept = self._checkpoints.kept
        stack = self._stack
        layers = [layer for layer in frozen.layers if layer in stack.layers]
        if kept and kept[0].position == position and not layers:
            return kept[0].info()
        base = stack.base
        assert isinstance(base, Runs)
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
        names = [run.name for run in base.runs]
        run_id = self._checkpoints.next_run_id()
        try:
            name = self._write_layers(run_id, position, layers, bottom=not names) if layers else None
            checkpoint = self._checkpoints.write(
                Manifest(
                    generation=0,
                    position=position,
                    wall_ms=self._clock.wall_ms(),
                    bytes_written=name.bytes if name else 0,
                    seconds=round(self._clock.monotonic() - started, 6),
                    runs=(*names, name) if name else tuple(names),
                )
            )
        finally:
            self._checkpoints.settled(run_id)
        with self._lock:
            if frozen.generation == self._generation:  # or else another state came over it meanwhile
                rest = tuple(layer for layer in self._stack.layers if layer not in layers)
                self._stack = Stack(rest, Runs(checkpoint.runs))
            frozen.layers = ()
        older = [other for other in kept if other.position < position]
        self._checkpoints.keep([checkpoint, *older][: self._settings.checkpoints_kept])
        return checkpoint.info()

    def checkpoints(self) -> list[CheckpointInfo]:
        return [checkpoint.info() for checkpoint in self._checkpoints.kept]

    def drop_after(self, position: Position) -> Position | None:
        self._refuse_reader("a truncation")
        self.flush()
        with self._disk:
            self._checkpoints.drop_after(position)
            self._go_to(self._checkpoints.kept)
            return self._position

    def verify(self) -> Iterator[Finding]:
        return Checkpoints(self._files, self._directory).findings()

    def flush(self) -> None:
        merger = self._merger
        if merger is not None:
            merger.join()
        error = self._merge_error
        if not isinstance(error, Corruption):  # that one stays until the holder opens again
            self._merge_error = None
        if error is not None:
            raise error

    def compact(self) -> None:
        self._refuse_reader("a compaction")
        self.flush()
        self._merge(merging.everything)
        self._retired.drain()

    def close(self) -> None:
        self._close_stack()
        merger = self._merger
        if merger is not None:
            merger.join()
        with self._disk:
            self._checkpoints.close()
        self._retired.drain()

    # Under `_disk`.

    def _writable(self, frozen: Frozen, position: Position) -> FrozenLayers:
        self._refuse_reader("a checkpoint")
        if self._closed:
            raise closed()
        if not isinstance(frozen, FrozenLayers) or frozen.generation != self._generation:
            raise BadInput("what was frozen belongs to a state that is no more", hint="freeze again")
        kept = self._checkpoints.kept
        if kept and position < kept[0].position:
            raise BadInput(
                f"a checkpoint at {position} would lie below the one at {kept[0].position}",
                hint="drop_after first, if the log was truncated",
            )
        return frozen

    def _write_layers(
        self, run_id: int, position: Position, layers: Sequence[Layer], *, bottom: bool
    ) -> RunName | None:
        from penstock.state.engines.native.writer import write_layers  # here, because numba is slow to import

        header = Header(run_id, position, self._clock.wall_ms(), run_id)
        return write_layers(self._files, self._directory, header, layers, bottom=bottom)

    def _go_to(self, kept: Sequence[Checkpoint]) -> None:
        """The state is that of the newest of these."""
        with self._lock:
            self._begin_anew(Stack((Layer(self._retired),), Runs(kept[0].runs if kept else ())))
        self._position = kept[0].position if kept else None

    def _refuse_reader(self, what: str) -> None:
        if self._read_only:
            raise NotSupported(f"{what} is the owner's: this state is open read-only")

    # Merges.

    def _merge_later(self) -> None:
        with self._disk:
            busy = self._merger is not None and self._merger.is_alive()
            kept = self._checkpoints.kept
            if self._closed or busy or not (self._due(kept) or merging.exceeds_spare_ratio(kept, self._settings)):
                return
            self._merger = threading.Thread(target=self._merge_in_background, name="penstock-state-merge", daemon=True)
            self._merger.start()

    def _merge_in_background(self) -> None:
        try:
            self._merge_all_due()
        except BaseException as error:  # `flush` raises it
            self._merge_error = error

    def _merge_all_due(self) -> None:
        while self._merge(self._due) or self._even_out():
            pass
        self._retired.drain()

    def _even_out(self) -> bool:
        """Where much changed between the checkpoints they share little, and the disk would hold the state twice: the newest is
        written again, as often as some are kept; the older ones go, and everything can be merged. Whether it did.
        """
        with self._disk:
            kept = self._checkpoints.kept
            if self._closed or not merging.exceeds_spare_ratio(kept, self._settings):
                return False
            again = [self._checkpoints.write(kept[0].manifest) for _ in range(self._settings.checkpoints_kept - 1)]
            self._checkpoints.keep([*reversed(again), kept[0]])
            return True

    def _due(self, kept: Sequence[Checkpoint]) -> tuple[Run, ...]:
        return merging.due(kept, self._settings)

    def _merge(self, choose: Choose) -> bool:
        """Merges what `choose` says, if anything; whether it did."""
        with self._merging:
            with self._disk:
                kept = self._checkpoints.kept
                runs = () if self._closed else choose(kept)
                if not runs:
                    return False
                bottom = runs[0] is kept[0].runs[0]
                run_id = self._checkpoints.next_run_id()
            try:
                from penstock.state.engines.native.writer import write_merged

                header = Header(run_id, runs[-1].header.position, self._clock.wall_ms(), runs[0].header.oldest_id)
                name = write_merged(self._files, self._directory, header, runs, bottom=bottom)
                with self._disk:
                    return not self._closed and self._install(runs, name)
            finally:
                with self._disk:
                    self._checkpoints.settled(run_id)

    def _install(self, runs: tuple[Run, ...], name: RunName | None) -> bool:
        """Puts every checkpoint on the merged run: durable before anything goes."""
        kept = self._checkpoints.kept
        if not kept or not all(_position_in(checkpoint.runs, runs) >= 0 for checkpoint in kept):
            return False  # a truncation came between; the next prune takes the run
        renewed = [
            self._checkpoints.write(checkpoint.manifest.pointed(0, _replaced(checkpoint.runs, runs, name)))
            for checkpoint in reversed(kept)
        ][::-1]
        with self._lock:
            layers, base = self._stack
            if isinstance(base, Runs) and _position_in(base.runs, runs) >= 0:
                names = _replaced(base.runs, runs, name)
                self._stack = Stack(layers, Runs(tuple(self._checkpoints.run(other) for other in names)))
        self._checkpoints.keep(renewed)
        return True


def _position_in(runs: Sequence[Run], some: Sequence[Run]) -> int:
    """Where `some` stand in `runs`, as neighbours; -1 if they do not."""
    for at in range(len(runs) - len(some) + 1):
        if all(one is other for one, other in zip(runs[at:], some, strict=False)):
            return at
    return -1


def _replaced(runs: Sequence[Run], some: Sequence[Run], name: RunName | None) -> tuple[RunName, ...]:
    at = _position_in(runs, some)
    names = [run.name for run in runs]
    names[at : at + len(some)] = [name] if name else []
    return tuple(names)
