"""Which runs to merge. Only those that every kept checkpoint shares: then none of them changes its position, and the files
that were merged can go at once."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.state.engines.native.checkpoints import Checkpoint
from penstock.state.engines.native.run import SortedRun
from penstock.state.settings import StateSettings

_WORTH = 0.08  # of the oldest run: less is not worth writing it again, even where room is scarce
_SPARE_BYTES_MIN = 1 << 20  # nobody misses less
_TIER = 2  # a run joins a merge while it is at most so many times as large as all newer ones in it


def shared(kept: Sequence[Checkpoint]) -> tuple[SortedRun, ...]:
    """The runs, oldest first, with which every checkpoint begins."""
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

    All of them, once those above the oldest weigh enough (what they replace is dead weight in it), or take enough of the room
    that there is for all; else, once there are too many to look through, the newest of similar size: each change is written
    again only as often as it meets a new size.
    """
    runs = shared(kept)
    if len(runs) < 2:
        return ()
    sizes = [run.name.bytes for run in runs]
    above = sum(sizes[1:])
    if above >= settings.merge_ratio * sizes[0] or (above >= _WORTH * sizes[0] and _crowded(kept, settings)):
        return runs
    if len(runs) - 1 <= settings.merge_runs_max:
        return ()
    first, weight = len(runs) - 2, sizes[-1] + sizes[-2]
    while first > 1 and sizes[first - 1] <= _TIER * weight:
        first -= 1
        weight += sizes[first]
    return runs[first:]


def exceeds_spare_ratio(kept: Sequence[Checkpoint], settings: StateSettings) -> bool:
    """Whether so much changed between the checkpoints that older ones cost more than they are worth: see `NativeEngine`."""
    return len(shared(kept)) < len(kept[0].runs) if _crowded(kept, settings) else False


def _crowded(kept: Sequence[Checkpoint], settings: StateSettings) -> bool:
    """Whether the runs above the oldest one take more room than there is for them."""
    if not kept or not kept[0].runs:
        return False
    names = {run.name for checkpoint in kept for run in checkpoint.runs}
    oldest = kept[0].runs[0].name.bytes
    spare = sum(name.bytes for name in names) - oldest
    return spare >= max(settings.spare_ratio_max * oldest, _SPARE_BYTES_MIN)


def everything(kept: Sequence[Checkpoint]) -> tuple[SortedRun, ...]:
    """What a compaction merges: all that is shared, unless it is as small as it can be."""
    runs = shared(kept)
    return runs if len(runs) > 1 or any(run.footer.tombstones for run in runs) else ()
