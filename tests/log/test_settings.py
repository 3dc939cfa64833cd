"""Settings: each is documented, and nonsense is refused by name."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from penstock.errors import BadInput
from penstock.log import LogSettings

_PULSAR_KEYS = [
    "managedLedgerMaxEntriesPerLedger",
    "managedLedgerMaxLedgerRolloverTimeMinutes",
    "managedLedgerMinLedgerRolloverTimeMinutes",
    "managedLedgerDefaultEnsembleSize",
    "managedLedgerDefaultWriteQuorum",
    "managedLedgerDefaultAckQuorum",
    "managedLedgerCacheSizeMB",
    "managedLedgerCacheEvictionWatermark",
    "managedLedgerCacheEvictionTimeThresholdMillis",
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes",
    "managedLedgerCursorMaxEntriesPerLedger",
    "managedLedgerCursorRolloverTimeInSeconds",
    "managedLedgerMarkDeleteRateLimit",
]


def test_every_setting_and_every_key_of_pulsars_managed_ledger_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "log-settings.md").read_text()
    names = [field.name for field in dataclasses.fields(LogSettings)]
    assert [name for name in [*names, *_PULSAR_KEYS] if f"`{name}`" not in page] == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("ledger_bytes_max", 0), ("ledger_entries_max", 0), ("retention_seconds", -1), ("retention_bytes", -5)],
)
def test_nonsense_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(BadInput, match=name):
        LogSettings(**{name: value})
