"""What a bucket state can be told. Plain data."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class StateSettings:
    """Each limit has a reason."""

    engine: str = "native"  # or "rocksdb": for state beyond memory
    checkpoints_kept: int = 2  # a damaged one is stepped over; the oldest one kept pins the log
    # Keys and values changed since the last checkpoint that ask for a new one: bounds memory, the tail that an open replays,
    # and how much of the disk the newest checkpoint takes beside the merged rest. None: only at a ledger roll and by hand.
    checkpoint_bytes: int | None = 32 << 20
    checkpoint_at_roll: bool = True  # whenever a ledger is sealed: the log may then be trimmed up to it
    merge_runs_max: int = (
        4  # runs above the oldest one before they are merged: each is one more place to look for a key
    )
    merge_ratio: float = 0.2  # runs above the oldest one that weigh this part of it are merged into it: bounds the disk
    # What checkpoints may hold beside the oldest run, as a part of it; where more changed between them, older ones go early.
    spare_ratio_max: float = 0.28
    merge_in_background: bool = True  # False: within `write`, for tests that count operations
    start_empty: bool = False  # on a trimmed log without a checkpoint: it never had state. True where that is certain
    cache_bytes: int = 256 << 20  # of blocks read by the `rocksdb` engine; `native` leaves caching to the kernel

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
