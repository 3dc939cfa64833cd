"""The settings of a log: plain data. docs/log-settings.md explains each and where its default comes from."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.arguments import check_amount, check_count, check_type
from penstock.errors import BadInput
from penstock.objects import checked_url


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Every limit has a default for a reason; `None` means no limit."""

    # When a ledger is full or old, and the log goes on in a new one
    ledger_bytes_max: int = 256 << 20  # small enough to move or restore as one object, large enough to roll seldom
    ledger_entries_max: int = 500_000  # keeps a footer's index within 4 MB
    ledger_age_min_seconds: float = 0.0  # a full ledger that is younger still takes entries
    ledger_age_max_seconds: float | None = 240 * 60.0  # an older one is rolled: trim takes only sealed ledgers
    ledger_idle_max_seconds: float | None = None  # rolled also after so long without an append
    first_ledger: int = 1  # the number of the first ledger, of a log that is new
    preallocate_bytes: int = 16 << 20  # reserved ahead of the open ledger's end: most syncs need not change its size

    # Appends
    waiting_bytes_max: int = 256 << 20  # of appends that wait for the disk; beyond it `append` itself waits
    ledger_switches_max: int = 3  # new ledgers that one group of appends tries before it fails
    stall_seconds_max: float | None = 60.0  # a write or sync that takes longer has failed; None: wait for ever

    # Trim: entries that every cursor and pin has passed go once they are older or the log is larger than this
    retention_seconds: float | None = None
    retention_bytes: int | None = None
    trim_without_cursors: bool = True  # False: nothing goes before somebody reads; the first reader is still to come
    maintenance_interval_seconds: float = 60.0  # between looks at age, retention, failed deletes, offload; 0: on demand
    cursor_inactive_seconds_max: float | None = None  # a cursor unused for longer is deleted; None: never

    # Reads
    read_attempts_max: int = 3  # of each copy of a ledger, before a read fails

    # Offload
    offload_url: str | None = None  # file:///…, s3://…, gs://… or az://…; credentials come from the environment
    offload_threshold_bytes: int | None = None  # sealed ledgers older than the newest bytes are copied; None: on demand
    offload_deletion_lag_seconds: float = 4 * 3600.0  # a copied ledger's local file is removed after this time
    offload_part_bytes: int = 16 << 20  # of one object: what is held in memory, and what a failed put repeats

    def __post_init__(self) -> None:
        if self.offload_url is not None:
            if not isinstance(self.offload_url, str):
                raise BadInput(f"offload_url is {self.offload_url!r}", hint="a text such as file:///…")
            checked_url(self.offload_url)
        elif self.offload_threshold_bytes is not None:
            raise BadInput("offload_threshold_bytes is set, but offload_url is not", hint="say where ledgers go to")
        for name in ("ledger_bytes_max", "ledger_entries_max", "waiting_bytes_max", "read_attempts_max",
                     "offload_part_bytes", "first_ledger"):  # fmt: skip
            check_count(name, getattr(self, name), least=1)
        for name in ("preallocate_bytes", "ledger_switches_max"):
            check_count(name, getattr(self, name))
        for name in ("retention_bytes", "offload_threshold_bytes"):
            check_count(name, getattr(self, name), optional=True)
        for name in ("ledger_age_min_seconds", "maintenance_interval_seconds", "offload_deletion_lag_seconds"):
            check_amount(name, getattr(self, name))
        for name in ("ledger_age_max_seconds", "ledger_idle_max_seconds", "retention_seconds",
                     "cursor_inactive_seconds_max"):  # fmt: skip
            check_amount(name, getattr(self, name), optional=True)
        check_type("trim_without_cursors", self.trim_without_cursors, bool)
        check_amount("stall_seconds_max", self.stall_seconds_max, optional=True, above=True)
