"""Each part of the log is judged by the settings that held there, whatever the configuration says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from penstock.cli.verify import exit_code
from penstock.entries.format import parse_entry
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config
from penstock.operations.verify import verify as module
from penstock.operations.verify.sink_files import data_directories
from penstock.operations.verify.verify import verify
from penstock.process import EXIT_DIFFERENT, EXIT_HELD_BACK
from penstock.rules.settings import Rule
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion, key_fingerprint
from penstock.sources.demo.source import DemoSource
from penstock.sources.settings import DemoSettings
from tests.delivery.rig import local_objects
from tests.operations.verify.planted import rewrite, without_a_row
from tests.operations.verify.sinks import capture, deliver

KEY, OLD_KEY = "the key of now, for all", "the key of yesterday"
Record = Callable[..., None]


@pytest.fixture(params=["parquet", "canal-json"])
def config(tmp_path: Path, request: pytest.FixtureRequest) -> Config:
    value = {
        "version": 1,
        "state_dir": "./state",
        "source": {"type": "demo", "changes": 3_000},
        "sinks": {"lake": {"url": "./lake", "format": request.param}},
        "mask_key": KEY,
    }
    (tmp_path / "penstock.yaml").write_text(yaml.safe_dump(value))
    config = load(tmp_path / "penstock.yaml")
    config.state_dir.mkdir(mode=0o700)
    assert isinstance(config.source, DemoSettings)
    capture(config, DemoSource(config.source))
    return config


@pytest.fixture
def record(config: Config, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Two versions of the settings, the second from the middle of the log on."""
    reader = LogReader.open(config.state_dir / "log")
    end = reader.end()
    entries = [entry for entry in reader.read(Position(end.ledger_id, 0), end) if len(entry.data)]
    middle = entries[len(entries) // 2]
    last = int(parse_entry(middle.data).transactions["commit_ts"].max())

    def recorded(old: RowSettings, new: RowSettings) -> None:
        since = Position(middle.position.ledger_id, middle.position.entry_id + 1)
        versions = (SettingsVersion(BEGINNING, 0, old), SettingsVersion(since, last + 1, new))
        monkeypatch.setattr(module, "settings_versions", lambda _directory, _name: versions)

    return recorded


def settings(key: str = "", **rule: Any) -> RowSettings:
    made = (Rule.model_validate({"table": "shop.customers", **rule}),)
    return RowSettings(made, key=key_fingerprint(key))


def test_rows_before_and_after_a_change(config: Config, record: Record) -> None:
    record(settings(mask={"email": "sha256"}), settings(drop=["birthday"], filter="id > 5", route="crm.people"))
    deliver(config)
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    sink = report.sinks[0]
    assert any("crm.people: its settings changed at" in note for note in sink.notes), sink.notes
    assert {"shop.customers", "crm.people", "shop.orders"} <= {table.name for table in sink.tables.values()}
    root = Path(urlsplit(config.sinks["lake"].url).path)
    for table in ("customers", "people"):
        (file, *_) = [f for d in data_directories(local_objects(root)) if d.table == table for f in d.files]
        before = (root / file).read_bytes()
        rewrite(root / file, without_a_row)
        assert exit_code(verify(config, with_source=False)) == EXIT_DIFFERENT, f"{table} is judged"
        (root / file).write_bytes(before)


def test_rows_by_a_key_that_is_gone_are_not_compared(
    config: Config, record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked = {"mask": {"email": "hmac-sha256"}}
    record(settings(OLD_KEY, **masked), settings(KEY, **masked))
    with monkeypatch.context() as patch:  # as it was delivered, with each key at hand in its time
        patch.setattr(module.VersionedRules, "has_key", lambda _self, _number: True)
        deliver(config)
    report = verify(config)
    found = report.sinks[0].differences
    assert (found.lost, found.doubled, found.wrong, found.unknown) == (0, 0, 0, 0), report.to_json()
    assert exit_code(report) == EXIT_HELD_BACK
    assert any("masked by another mask_key, and not compared" in text for text in report.sinks[0].held), (
        report.to_json()
    )
