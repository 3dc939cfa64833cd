"""The `state:` part of the configuration: every setting of the state that rides with the log (docs/state.md, "Tuning").

Capture opens the state by these settings, as it opens the log. Values carry their unit, so the keys do not:
`scrub_interval: 1d` is `scrub_interval_seconds`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from penstock.capture.log_config import Bytes, SomeBytes, SomeCount, SomeTime
from penstock.state import StateSettings

_DEFAULT = StateSettings()
Ratio = Annotated[float, Field(gt=0, le=1_000, strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class StateConfig(BaseModel):
    """Each key is one setting of `StateSettings`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["native", "rocksdb"] = "native"
    checkpoints_kept: Annotated[SomeCount, Field(ge=2)] = _DEFAULT.checkpoints_kept
    checkpoint: SomeBytes | None = _DEFAULT.checkpoint_bytes
    checkpoint_at_roll: Flag = _DEFAULT.checkpoint_at_roll
    merge_runs_max: SomeCount = _DEFAULT.merge_runs_max
    merge_ratio: Ratio = _DEFAULT.merge_ratio
    merge_in_background: Flag = _DEFAULT.merge_in_background
    spare_ratio_max: Ratio = _DEFAULT.spare_ratio_max
    scrub_interval: SomeTime | None = _DEFAULT.scrub_interval_seconds
    scrub_per_second: SomeBytes = _DEFAULT.scrub_bytes_per_second
    cache: Bytes = _DEFAULT.cache_bytes
    start_empty: Flag = _DEFAULT.start_empty

    def settings(self) -> StateSettings:
        """What the state is opened with."""
        return StateSettings(
            engine=self.engine,
            checkpoints_kept=self.checkpoints_kept,
            checkpoint_bytes=self.checkpoint,
            checkpoint_at_roll=self.checkpoint_at_roll,
            merge_runs_max=self.merge_runs_max,
            merge_ratio=self.merge_ratio,
            merge_in_background=self.merge_in_background,
            spare_ratio_max=self.spare_ratio_max,
            scrub_interval_seconds=self.scrub_interval,
            scrub_bytes_per_second=self.scrub_per_second,
            cache_bytes=self.cache,
            start_empty=self.start_empty,
        )
