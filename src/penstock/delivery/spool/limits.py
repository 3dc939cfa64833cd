"""The limits of a spool. All have defaults: a spool works without any setting."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadInput

SHARDS = 16  # enough that writers and producers seldom share a lock; does not grow with dispatchers
MEMORY_LOW_BYTES = 256 << 20
MEMORY_HIGH_BYTES = 512 << 20
LOW_BYTES = 1 << 30
HIGH_BYTES = 2 << 30
QUOTA_BYTES = 4 << 30
SEGMENT_BYTES = 32 << 20  # small enough that rewriting a segment is short, large enough that files stay few
READ_BACK_BYTES = 128 << 20  # of all writers together
POP_ITEMS_MAX = 256
POP_BYTES_MAX = 8 << 20
SHARES = 4  # of the quota; a dispatcher has one


@dataclass(frozen=True, slots=True)
class SpoolLimits:
    """How much a spool holds. *Held* is memory and disk together, staged and unpublished bytes included.

    - Above `high_bytes` held, wakes are suppressed; at or below `low_bytes` they come again. Meanwhile writers that have
      nothing else to do write the largest batches before their time.
    - Above `memory_low_bytes` in memory, the oldest payloads are spilled. Above `memory_high_bytes`, when the disk is
      slower than the producers, wakes are suppressed too, until memory is down to `memory_low_bytes`.
    - `quota_bytes` is hard. Segments never take more than that of the real disk, and `Spool.admit` raises above
      it: delivery then refuses to stage. `enqueue` never blocks and never refuses: what it gets was staged before.
    """

    high_bytes: int = HIGH_BYTES
    low_bytes: int = LOW_BYTES
    memory_high_bytes: int = MEMORY_HIGH_BYTES
    memory_low_bytes: int = MEMORY_LOW_BYTES
    quota_bytes: int = QUOTA_BYTES

    def __post_init__(self) -> None:
        for what, low, high in (
            ("watermarks", self.low_bytes, self.high_bytes),
            ("memory", self.memory_low_bytes, self.memory_high_bytes),
        ):
            if not 0 <= low <= high:
                raise BadInput(f"spool {what}: low {low} bytes must be at most high {high} bytes")
        if self.quota_bytes < self.high_bytes:
            raise BadInput(f"spool quota: {self.quota_bytes} bytes are less than high, {self.high_bytes} bytes")

    @property
    def share_bytes(self) -> int:
        """What one dispatcher may hold while its writes fail and others' do not. Above that it is left out."""
        return self.quota_bytes // SHARES

    @property
    def overshoot_bytes(self) -> int:
        """How far the spool may be above `high_bytes`: batches that were in flight when wakes were suppressed, up to the
        hard quota. Beyond that there is at most one item for each stager, because an item larger than what is left passes."""
        return self.quota_bytes - self.high_bytes

    @property
    def segment_bytes(self) -> int:
        """Where a segment is closed. A small quota has small segments, so that rewriting one fits into the quota."""
        return max(1, min(SEGMENT_BYTES, self.quota_bytes // 8))
