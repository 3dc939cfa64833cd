"""The settings of a bucket state: plain data. docs/state.md, "Tuning", has them for users."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadInput


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
    merge_in_background: bool = True  # False: within the checkpoint, for tests that count operations
    start_empty: bool = False  # True: a trimmed log without a checkpoint never had state, so it is opened with none
    cache_bytes: int = 256 << 20  # of checkpoint files that an engine keeps in memory

    def __post_init__(self) -> None:
        for name, least in (
            ("checkpoints_kept", 2),
            ("checkpoint_bytes", 1),
            ("merge_runs_max", 1),
            ("cache_bytes", 0),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise BadInput(f"{name} is {value}", hint=f"at least {least}")
        for name in ("merge_ratio", "spare_ratio_max"):
            if getattr(self, name) <= 0:
                raise BadInput(f"{name} is {getattr(self, name)}", hint="above 0")
