"""What a log can be told. Plain data; docs/log-settings.md says where each comes from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import BadInput


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Each limit has a reason. `None` means: no limit."""

    # A ledger is full at
    ledger_bytes_max: int = 256 << 20  # small enough to move or restore as one object, large enough to roll seldom
    ledger_entries_max: int = 500_000  # keeps a footer's index within 4 MB
    ledger_age_min_seconds: float = 0.0  # a full ledger that is younger goes on
    ledger_age_max_seconds: float | None = 240 * 60.0  # an older one that holds entries is rolled: retention reaches it
    ledger_idle_max_seconds: float | None = None  # as the age, since the last append
    preallocate_bytes: int = 16 << 20  # step in which the open ledger reserves space ahead of its end

    # Appends
    waiting_bytes_max: int = 256 << 20  # appends that wait for the disk; beyond it, append itself waits
    ledger_switches_max: int = 3  # new ledgers that one group of appends may try before it fails

    # Trim: entries that every cursor and pin has passed stay this long, or as long as the log is smaller than that
    retention_seconds: float | None = None
    retention_bytes: int | None = None
    maintenance_interval_seconds: float = (
        60.0  # age, retention, failed deletes and offload are looked at; 0: only on demand
    )

    # Reads
    read_attempts_max: int = 3  # before a read that the disk refuses fails

    # Offload
    offload_threshold_bytes: int | None = None  # sealed ledgers beyond this much move to the object store; None: never

    def __post_init__(self) -> None:
        for name in ("ledger_bytes_max", "ledger_entries_max", "waiting_bytes_max", "read_attempts_max"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}", hint="at least 1")
        for name in ("ledger_age_min_seconds", "ledger_age_max_seconds", "ledger_idle_max_seconds", "retention_seconds",
                     "retention_bytes", "preallocate_bytes", "ledger_switches_max", "maintenance_interval_seconds"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 0:
                raise BadInput(f"{name} is {value}", hint="not below 0; None for no limit")
