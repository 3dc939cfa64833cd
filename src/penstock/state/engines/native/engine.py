"""The `native` state engine. The contract is in engines/engine.py, the order of changes on the disk in checkpoints.py.

Three locks, taken in this order: `_merging` (one merge at a time), `_disk` (the directory and the list of checkpoints),
`_lock` (the layers). A merge reads and writes its runs under `_merging` alone, so that checkpoints go on beside it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from penstock.errors import Corruption, Unavailable, fresh
from penstock.log.position import Position
from penstock.state.engines.checkpointed import CheckpointedEngine, EngineOptions
from penstock.state.engines.engine import CheckpointInfo, Finding, Frozen
from penstock.state.engines.layered import FrozenLayers
from penstock.state.engines.native import merging
from penstock.state.engines.native.base import RunsBase
from penstock.state.engines.native.checkpoints import Checkpoint, Checkpoints
from penstock.state.engines.native.format import BadRun, Header
from penstock.state.engines.native.manifest import CheckpointManifest
from penstock.state.engines.native.run import RunName, SortedRun
from penstock.state.engines.overlay import NO_BASE, Base, Layer, Stack
from penstock.threads import start_thread

Choose = Callable[[Sequence[Checkpoint]], tuple[SortedRun, ...]]


class NativeEngine(CheckpointedEngine):
    name = "native"

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._merging = threading.Lock()
        self._merger: threading.Thread | None = None
        self._merge_error: BaseException | None = None
        self._checkpoints = Checkpoints(options.files, options.directory)
        if options.at is not None and not options.read_only:
            self._checkpoints.drop_after(options.at)
        count = 1 if options.read_only else options.settings.checkpoints_kept
        self._checkpoints.load(at=options.at, count=count, verify=options.verify)
        self._go_to_newest()

    @property
    def damaged(self) -> Sequence[Finding]:
        return tuple(self._checkpoints.damaged)

    def write(self, frozen: Frozen, position: Position) -> CheckpointInfo:
        if isinstance(self._merge_error, Corruption):
            raise fresh(self._merge_error)
        info = super().write(frozen, position)
        if self._settings.merge_in_background:
            self._merge_later()
        else:
            self._merge_all_due()
        return info

    def _write(self, frozen: FrozenLayers, layers: Sequence[Layer], base: Base, position: Position) -> CheckpointInfo:
        """(1) the run of what changed; (2) the manifest; (3) readers change over; (4) old checkpoints are removed."""
        started = self._clock.monotonic()
        if not self._files.exists(self._directory):
            self._files.make_directory(self._directory)
        names = [run.name for run in base.runs] if isinstance(base, RunsBase) else []
        run_id = self._checkpoints.next_run_id()
        try:
            name = self._write_layers(run_id, position, layers, bottom=not names) if layers else None
            self._check_not_abandoned()
            checkpoint = self._checkpoints.write(
                CheckpointManifest(
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
        self._put_below(frozen, layers, self._base(checkpoint.runs))
        self._check_not_abandoned()
        older = [other for other in self._checkpoints.kept if other.position < position]
        self._checkpoints.keep([checkpoint, *older][: self._settings.checkpoints_kept])
        return checkpoint.info()

    def checkpoints(self) -> list[CheckpointInfo]:
        return [checkpoint.info() for checkpoint in self._checkpoints.kept]

    def _drop_after(self, position: Position) -> None:
        self._checkpoints.drop_after(position)
        self._go_to_newest()

    def verify(self) -> Iterator[Finding]:
        return Checkpoints(self._files, self._directory).findings()

    def scrub(self, pause: Callable[[int], None]) -> list[Finding]:
        """Reads the files anew, under their names: so a file that is gone is found too."""
        with self._disk:
            kept = list(self._checkpoints.kept)
        found: list[Finding] = []
        for run in {run.name: run for checkpoint in kept for run in checkpoint.runs}.values():
            run.damage = self._scrub_run(run, pause)
            found += run.damage
        with self._disk:
            manifests = [finding for _, finding in self._checkpoints.damaged_manifests()]
            return [*found, *manifests, *self._checkpoints.left_over()]

    def mend(self) -> None:
        """A damaged run is written anew, as a merge of itself, under another name; a damaged manifest is written again;
        what a failed removal left over is removed."""
        self._refuse_reader("a repair")
        with self._disk:
            self._check_not_abandoned()
            self._checkpoints.renew_damaged()
        while self._merge(_damaged):
            pass

    def _scrub_run(self, run: SortedRun, pause: Callable[[int], None]) -> list[Finding]:
        try:
            return SortedRun(self._files, self._directory, run.name).scrub(pause)
        except FileNotFoundError:
            with self._disk:
                if run not in [other for checkpoint in self._checkpoints.kept for other in checkpoint.runs]:
                    return []  # merged meanwhile
            return [Finding(str(run.path), 0, "the file is not there")]
        except BadRun as error:
            return [Finding(str(run.path), error.offset, error.problem)]

    def flush(self) -> None:
        merger = self._merger
        if merger is not None:
            merger.join()
        error = self._merge_error
        if not isinstance(error, Corruption):  # damage stays known until the holder opens the state again
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

    def _write_layers(
        self, run_id: int, position: Position, layers: Sequence[Layer], *, bottom: bool
    ) -> RunName | None:
        from penstock.state.engines.native.writer import write_layers  # here, because numba is slow to import

        self._check_not_abandoned()
        header = Header(run_id, position, self._clock.wall_ms(), run_id)
        return write_layers(self._files, self._directory, header, layers, bottom=bottom)

    def _base(self, runs: tuple[SortedRun, ...]) -> RunsBase:
        return RunsBase(runs, self._settings.cache_bytes)

    def _go_to_newest(self) -> None:
        """The state is that of the newest checkpoint kept."""
        kept = self._checkpoints.kept
        if kept:
            self._go_to(self._base(kept[0].runs), kept[0].position)
        else:
            self._go_to(NO_BASE, None)

    # -- merges --------------------------------------------------------------------------------------------------

    def _merge_later(self) -> None:
        """Starts a merge in the background, where one is due and none is under way."""
        with self._disk:
            busy = self._merger is not None and self._merger.is_alive()
            kept = self._checkpoints.kept
            due = _damaged(kept) or self._due(kept) or merging.exceeds_spare_ratio(kept, self._settings)
            if self._closed or busy or not due:
                return
            with contextlib.suppress(Unavailable):  # the next checkpoint tries again
                self._merger = start_thread(self._merge_in_background, "penstock-state-merge")

    def _merge_in_background(self) -> None:
        try:
            self._merge_all_due()
        except BaseException as error:  # `flush` raises it
            self._merge_error = error

    def _merge_all_due(self) -> None:
        while self._merge(_damaged) or self._merge(self._due) or self._collapse_to_newest():
            pass
        self._retired.drain()

    def _collapse_to_newest(self) -> bool:
        """Drops the older checkpoints early, where they share so little with the newest that the disk would hold the
        state twice. The newest is written again, so that as many are kept as the settings say; then all of its runs are
        shared and can be merged. Returns whether it did.
        """
        with self._disk:
            kept = self._checkpoints.kept
            if self._closed or self._abandoned or not merging.exceeds_spare_ratio(kept, self._settings):
                return False
            again = [self._checkpoints.write(kept[0].manifest) for _ in range(self._settings.checkpoints_kept - 1)]
            self._checkpoints.keep([*reversed(again), kept[0]])
            return True

    def _due(self, kept: Sequence[Checkpoint]) -> tuple[SortedRun, ...]:
        return merging.due(kept, self._settings)

    def _merge(self, choose: Choose) -> bool:
        """Merges the runs that `choose` returns. False if there is nothing to merge, or a truncation came between."""
        with self._merging:
            with self._disk:
                kept = self._checkpoints.kept
                runs = () if self._closed else choose(kept)
                if not runs:
                    return False
                bottom = any(runs[0] is checkpoint.runs[0] for checkpoint in kept)
                run_id = self._checkpoints.next_run_id()
            try:
                from penstock.state.engines.native.writer import write_merged

                self._check_not_abandoned()
                header = Header(run_id, runs[-1].header.position, self._clock.wall_ms(), runs[0].header.oldest_id)
                name = write_merged(self._files, self._directory, header, runs, bottom=bottom)
                with self._disk:
                    self._check_not_abandoned()
                    return not self._closed and self._install(runs, name)
            finally:
                with self._disk:
                    self._checkpoints.settled(run_id)

    def _install(self, runs: tuple[SortedRun, ...], name: RunName | None) -> bool:
        """Writes every kept checkpoint that has `runs` again, with the merged run in their place. The new manifests are
        durable before anything is removed. `_disk` held.
        """
        kept = self._checkpoints.kept
        having = [checkpoint for checkpoint in kept if _index_of(checkpoint.runs, runs) >= 0]
        if not having or (len(having) < len(kept) and len(runs) > 1):
            return False  # a truncation came between; the next prune removes the merged run
        renewed = [
            self._checkpoints.write(checkpoint.manifest.with_runs(0, _replaced(checkpoint.runs, runs, name)))
            if checkpoint in having
            else checkpoint
            for checkpoint in reversed(kept)
        ][::-1]
        with self._lock:
            layers, base = self._stack
            if isinstance(base, RunsBase) and _index_of(base.runs, runs) >= 0:
                names = _replaced(base.runs, runs, name)
                self._stack = Stack(layers, self._base(tuple(self._checkpoints.run(other) for other in names)))
        self._checkpoints.keep(renewed)
        return True


def _damaged(kept: Sequence[Checkpoint]) -> tuple[SortedRun, ...]:
    """A run whose file is damaged, and could be read nevertheless: a merge of it alone is a sound copy. Empty: none."""
    for checkpoint in kept:
        for run in checkpoint.runs:
            if run.damaged:
                return (run,)
    return ()


def _index_of(runs: Sequence[SortedRun], some: Sequence[SortedRun]) -> int:
    """The index at which `runs` contains `some`, in order and without gaps; -1 if it does not."""
    for at in range(len(runs) - len(some) + 1):
        if all(one is other for one, other in zip(runs[at:], some, strict=False)):
            return at
    return -1


def _replaced(runs: Sequence[SortedRun], some: Sequence[SortedRun], name: RunName | None) -> tuple[RunName, ...]:
    """The names of `runs` with `name` in place of `some`; None: the merge left no record, and `some` are left out."""
    at = _index_of(runs, some)
    names = [run.name for run in runs]
    names[at : at + len(some)] = [name] if name else []
    return tuple(names)
