"""The settings of a bucket state: plain data. docs/state.md, "Tuning", has them for users."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.arguments import check_amount, check_count
from penstock.errors import BadInput

ENGINES = ("native", "rocksdb")


@dataclass(frozen=True, slots=True)
class StateSettings:
    """How a state keeps its checkpoints. A value that makes no sense raises `BadInput`."""

    engine: str = "native"  # or "rocksdb": for state beyond memory
    checkpoints_kept: int = 2  # where the newest is damaged, an older one serves; the oldest pins the log
    # A checkpoint is due once so many bytes of keys and values have changed since the last one. Bounds memory, the tail
    # that an open replays, and what the newest checkpoint takes on disk beside the merged rest. None: only at a roll
    # and by hand.
    checkpoint_bytes: int | None = 32 << 20
    checkpoint_at_roll: bool = True  # a checkpoint whenever a ledger is sealed: the log may then be trimmed up to it
    # Runs above the oldest one, before some of them are merged: each is one more place to look for a key.
    merge_runs_max: int = 4
    # Runs above the oldest one are merged into it once they reach this share of its size: bounds the disk.
    merge_ratio: float = 0.2
    # What all checkpoints together may hold beside the oldest run, as a share of its size. Where more changed between
    # them, the older checkpoints are dropped early.
    spare_ratio_max: float = 0.28
    # Every byte of the checkpoints is read from the disk and compared this often, so that damage is found and mended while
    # it is small. None: never by itself.
    scrub_interval_seconds: float | None = 86_400.0
    scrub_bytes_per_second: int = 16 << 20  # at most: a scrub leaves the disk to others
    merge_in_background: bool = True  # False: within the checkpoint, for tests that count operations
    start_empty: bool = False  # True: a trimmed log without a checkpoint never had state, so it is opened with none
    cache_bytes: int = 256 << 20  # of checkpoint files that an engine keeps in memory

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise BadInput(f"engine is {self.engine!r}", hint=f"one of {', '.join(ENGINES)}")
        check_count("checkpoints_kept", self.checkpoints_kept, least=2)
        check_count("checkpoint_bytes", self.checkpoint_bytes, least=1, optional=True)
        check_count("merge_runs_max", self.merge_runs_max, least=1)
        check_count("cache_bytes", self.cache_bytes)
        check_count("scrub_bytes_per_second", self.scrub_bytes_per_second, least=1)
        check_amount("scrub_interval_seconds", self.scrub_interval_seconds, above=True, optional=True)
        for name in ("merge_ratio", "spare_ratio_max"):
            check_amount(name, getattr(self, name), above=True)
        for name in ("checkpoint_at_roll", "merge_in_background", "start_empty"):
            if type(getattr(self, name)) is not bool:
                raise BadInput(f"{name} is {getattr(self, name)!r}", hint="True or False")
