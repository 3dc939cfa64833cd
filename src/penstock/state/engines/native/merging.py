"""Which runs to merge, and when. Only runs that every kept checkpoint shares are merged: then the merged run takes
their place in each checkpoint, no checkpoint changes its position, and the old files can be removed at once."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.state.engines.native.checkpoints import Checkpoint
from penstock.state.engines.native.run import SortedRun
from penstock.state.settings import StateSettings

_WORTH_RATIO = 0.08  # a smaller share of the oldest run is not worth rewriting it, even where disk space is short
_SPARE_BYTES_MIN = 1 << 20  # a smaller excess is not worth a merge
_TIER_RATIO = 2  # a run joins a merge if it is at most so many times as large as all newer runs in it together


def shared(kept: Sequence[Checkpoint]) -> tuple[SortedRun, ...]:
    """The runs that all checkpoints have in common, oldest first."""
    if not kept:
        return ()
    common = 0
    for column in zip(*(checkpoint.runs for checkpoint in kept), strict=False):
        if any(run is not column[0] for run in column):
            break
        common += 1
    return kept[0].runs[:common]


def due(kept: Sequence[Checkpoint], settings: StateSettings) -> tuple[SortedRun, ...]:
    """Neighbouring runs to merge now, oldest first; empty: none.

    All shared runs, once those above the oldest reach `merge_ratio` of its size, or disk space runs short. Otherwise,
    above `merge_runs_max`, the newest runs of similar size: so a change is rewritten only when its run meets others of
    its size.
    """
    runs = shared(kept)
    if len(runs) < 2:
        return ()
    sizes = [run.name.bytes for run in runs]
    above = sum(sizes[1:])
    if above >= settings.merge_ratio * sizes[0] or (
        above >= _WORTH_RATIO * sizes[0] and _spare_is_used_up(kept, settings)
    ):
        return runs
    if len(runs) - 1 <= settings.merge_runs_max:
        return ()
    first, weight = len(runs) - 2, sizes[-1] + sizes[-2]
    while first > 1 and sizes[first - 1] <= _TIER_RATIO * weight:
        first -= 1
        weight += sizes[first]
    return runs[first:]


def exceeds_spare_ratio(kept: Sequence[Checkpoint], settings: StateSettings) -> bool:
    """Whether the kept checkpoints take more disk than `spare_ratio_max` allows, and a merge cannot help, because they
    do not share all runs of the newest. Then `NativeEngine` drops the older ones.
    """
    return _spare_is_used_up(kept, settings) and len(shared(kept)) < len(kept[0].runs)


def _spare_is_used_up(kept: Sequence[Checkpoint], settings: StateSettings) -> bool:
    """Whether all runs but the oldest take more disk than `spare_ratio_max` allows."""
    if not kept or not kept[0].runs:
        return False
    names = {run.name for checkpoint in kept for run in checkpoint.runs}
    oldest = kept[0].runs[0].name.bytes
    spare = sum(name.bytes for name in names) - oldest
    return spare >= max(settings.spare_ratio_max * oldest, _SPARE_BYTES_MIN)


def everything(kept: Sequence[Checkpoint]) -> tuple[SortedRun, ...]:
    """What a compaction merges: all shared runs, unless that is one run without tombstones already."""
    runs = shared(kept)
    return runs if len(runs) > 1 or any(run.footer.tombstones for run in runs) else ()
