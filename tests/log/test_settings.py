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


_WRONG = ("x", b"x", [], -1, -0.5, float("nan"), float("inf"), True, object())


@pytest.mark.parametrize("field", dataclasses.fields(LogSettings), ids=lambda field: field.name)
def test_nonsense_is_refused_by_name(field: dataclasses.Field[object]) -> None:
    for value in _WRONG:
        if value is True and isinstance(field.default, bool):
            continue
        with pytest.raises(BadInput, match=None if field.name == "offload_url" and value == "x" else field.name):
            LogSettings(**{field.name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["ledger_bytes_max", "ledger_entries_max", "stall_seconds_max", "read_attempts_max"])
def test_what_must_be_above_zero(name: str) -> None:
    with pytest.raises(BadInput, match=name):
        LogSettings(**{name: 0})  # type: ignore[arg-type]
