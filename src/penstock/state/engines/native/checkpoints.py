"""The checkpoints in a directory: finds the good ones, adds one, rewrites one with other runs, and removes the rest.

The order of every change: (1) new runs are made durable; (2) manifests that name them are made durable, oldest first;
(3) manifests that are no longer kept are removed and the directory is synced, so that none comes back after its runs
are gone; (4) runs that no manifest names are removed. Not thread-safe: the engine locks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import Corruption
from penstock.files import Files
from penstock.log.position import Position
from penstock.state.engines.engine import CheckpointInfo, Finding
from penstock.state.engines.native import manifest as manifests
from penstock.state.engines.native.format import BadRun
from penstock.state.engines.native.manifest import CheckpointManifest
from penstock.state.engines.native.run import RunName, SortedRun

_LISTS_MAX = 5  # the owner may remove files after a reader has listed the directory: then the reader lists it again


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A manifest with its runs open, oldest first."""

    manifest: CheckpointManifest
    runs: tuple[SortedRun, ...]

    @property
    def position(self) -> Position:
        return self.manifest.position

    def info(self) -> CheckpointInfo:
        puts = sum(run.footer.puts for run in self.runs)
        return CheckpointInfo(
            position=self.position,
            wall_ms=self.manifest.wall_ms,
            keys=max(puts - sum(run.footer.tombstones for run in self.runs), 0),
            bytes=sum(run.name.bytes for run in self.runs),
            bytes_written=self.manifest.bytes_written,
            seconds=self.manifest.seconds,
        )


class Checkpoints:
    """The checkpoints of one directory. `kept`: the good ones in use, newest first. `damaged`: why others are not."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.directory = directory
        self.kept: list[Checkpoint] = []
        self.damaged: list[Finding] = []
        self._files = files
        self._runs: dict[RunName, SortedRun] = {}
        self._generation = 0
        self._run_id = 0
        self._being_written: set[int] = set()  # ids of runs that no manifest names yet, and `keep` leaves alone

    def load(self, *, at: Position | None, count: int, verify: bool) -> None:
        """Fills `kept` with the newest good checkpoints at or below `at`, at most `count`; `damaged` with what was
        wrong with those that were tried and are not good."""
        for _ in range(_LISTS_MAX):
            names = self._files.list(self.directory)
            self._load(names, at=at, count=count, verify=verify)
            if not self.damaged or self._files.list(self.directory) == names:
                return

    def _load(self, names: list[str], *, at: Position | None, count: int, verify: bool) -> None:
        self.kept, self.damaged, self._runs = [], [], {}
        found: list[CheckpointManifest] = []
        for name in names:
            self._run_id = max(self._run_id, manifests.run_id_of(name) or 0)
            generation = manifests.generation_of(name)
            if generation is None:
                continue
            self._generation = max(self._generation, generation)
            try:
                found.append(manifests.read(self._files, self.directory / name))
            except FileNotFoundError:
                self.damaged.append(Finding(str(self.directory / name), 0, "the file is not there"))
            except BadRun as error:
                self.damaged.append(Finding(str(self.directory / name), error.offset, error.problem))
        found.sort(key=lambda m: (m.position, m.generation), reverse=True)
        for manifest in found:
            self._run_id = max(self._run_id, *(run.id for run in manifest.runs), 0)
        wanted = [manifest for manifest in found if at is None or manifest.position <= at]
        newest = list({manifest.position: manifest for manifest in reversed(wanted)}.values())[::-1]
        # First the newest manifest of each position; where these are not enough, then the others.
        good: list[Checkpoint] = []
        tried: set[int] = set()
        for manifest in [*newest, *wanted]:
            if len(good) < count and manifest.generation not in tried:
                tried.add(manifest.generation)
                runs = self._open_runs(manifest, verify=verify)
                if runs is not None:
                    good.append(Checkpoint(manifest, runs))
        self.kept = sorted(good, key=lambda c: (c.position, c.manifest.generation), reverse=True)

    def _open_runs(self, manifest: CheckpointManifest, *, verify: bool) -> tuple[SortedRun, ...] | None:
        runs = []
        for name in manifest.runs:
            path = self.directory / name.file
            try:
                run = self.run(name)
                if verify:
                    run.check_all()
                runs.append(run)
            except FileNotFoundError:
                self.damaged.append(Finding(str(path), 0, "the file is not there"))
                return None
            except BadRun as error:
                self.damaged.append(Finding(str(path), error.offset, error.problem))
                return None
            except Corruption as error:
                self.damaged.append(Finding(str(path), 0, error.message))
                return None
        return tuple(runs)

    def run(self, name: RunName) -> SortedRun:
        """The run of that name: opened once, however many checkpoints share it."""
        run = self._runs.get(name)
        if run is None:
            run = self._runs[name] = SortedRun(self._files, self.directory, name)
        return run

    def next_run_id(self) -> int:
        """The id for a run that is about to be written. `keep` does not remove that run before `settled` is called."""
        self._run_id += 1
        self._being_written.add(self._run_id)
        return self._run_id

    def settled(self, run_id: int) -> None:
        """A manifest names the run now, or nobody needs it."""
        self._being_written.discard(run_id)

    def write(self, manifest: CheckpointManifest) -> Checkpoint:
        """Step (2): makes the manifest durable, with the next generation."""
        self._generation += 1
        manifest = manifest.with_runs(self._generation, manifest.runs)
        manifests.write(self._files, self.directory, manifest)
        return Checkpoint(manifest, tuple(self.run(name) for name in manifest.runs))

    def keep(self, kept: list[Checkpoint]) -> None:
        """Steps (3) and (4): removes all checkpoints but these, which are durable already."""
        self.kept = kept
        names = self._files.list(self.directory)
        wanted = {checkpoint.manifest.file for checkpoint in kept}
        gone = [name for name in names if _is_manifest(name) and name not in wanted]
        for name in gone:
            self._files.remove(self.directory / name)
        if gone:
            self._files.sync_directory(self.directory)
        runs = {run.name for checkpoint in kept for run in checkpoint.runs}
        ids = {name.id for name in runs} | self._being_written
        for name in names:
            run_id = manifests.run_id_of(name)
            if run_id is not None and (
                run_id not in ids or (name.startswith(".") and run_id not in self._being_written)
            ):
                self._files.remove(self.directory / name)
        self._runs = {name: run for name, run in self._runs.items() if name in runs}

    def drop_after(self, position: Position) -> None:
        """Removes the checkpoints above `position`, durably. Damaged ones stay: their position is not known."""
        gone = False
        for name in self._files.list(self.directory):
            if manifests.generation_of(name) is None:
                continue
            try:
                above = manifests.read(self._files, self.directory / name).position > position
            except BadRun:
                continue
            if above:
                self._files.remove(self.directory / name)
                gone = True
        if gone:
            self._files.sync_directory(self.directory)
        self.kept = [checkpoint for checkpoint in self.kept if checkpoint.position <= position]

    def damaged_manifests(self) -> list[tuple[Checkpoint, Finding]]:
        """The kept checkpoints whose manifests are not on the disk as they were written."""
        found: list[tuple[Checkpoint, Finding]] = []
        for checkpoint in self.kept:
            path = self.directory / checkpoint.manifest.file
            try:
                damage = manifests.find_damage(self._files, path, checkpoint.manifest)
            except FileNotFoundError:
                damage = BadRun(0, "the file is not there")
            if damage is not None:
                found.append((checkpoint, Finding(str(path), damage.offset, damage.problem)))
        return found

    def left_over(self) -> list[Finding]:
        """The manifests that are not kept any more, and whose removal failed. The next `keep` removes them; until then
        nobody mends them or their runs. None where nothing is kept: then they may be all that there is."""
        if not self.kept:
            return []
        wanted = {checkpoint.manifest.file for checkpoint in self.kept}
        names = [name for name in self._files.list(self.directory) if _is_manifest(name) and name not in wanted]
        return [Finding(str(self.directory / name), 0, "it is not kept any more, and is still there") for name in names]

    def renew_damaged(self) -> None:
        """Writes the damaged manifests again, with higher generations; the damaged files are removed after that, and with
        them what is left over."""
        damaged = [checkpoint for checkpoint, _ in self.damaged_manifests()]
        if damaged or self.left_over():
            oldest_first = reversed(self.kept)
            self.keep([self.write(one.manifest) if one in damaged else one for one in oldest_first][::-1])

    def findings(self) -> Iterator[Finding]:
        """Reads every byte of every checkpoint in the directory, from the files as they are now."""
        seen: set[RunName] = set()
        for name in self._files.list(self.directory):
            if manifests.generation_of(name) is None:
                continue
            path = self.directory / name
            try:
                manifest = manifests.read(self._files, path)
                damage = manifests.find_damage(self._files, path, manifest)
            except FileNotFoundError:
                continue  # the owner removed it meanwhile
            except BadRun as error:
                yield Finding(str(path), error.offset, error.problem)
                continue
            if damage is not None:
                yield Finding(str(path), damage.offset, damage.problem)
            for run in manifest.runs:
                if run in seen:
                    continue
                seen.add(run)
                try:
                    yield from SortedRun(self._files, self.directory, run).findings()
                except FileNotFoundError:
                    if self._files.exists(path):
                        yield Finding(str(self.directory / run.file), 0, f"{name} names it, and it is not there")
                except BadRun as error:
                    yield Finding(str(self.directory / run.file), error.offset, error.problem)

    def close(self) -> None:
        self._runs.clear()


def _is_manifest(name: str) -> bool:
    return manifests.generation_of(name.removeprefix(".").removesuffix(".tmp")) is not None
