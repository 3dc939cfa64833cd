"""Verify is shown to fail also on what is beside the rows: schema files, the checkpoint, files that were recorded as written;
and on what is lost where other rows are still on their way, or where the log was trimmed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from penstock.changefeed.facts import DISPATCHERS, DispatcherFacts
from penstock.cli.verify import exit_code
from penstock.delivery.payload import dispatcher_id
from penstock.encode.parquet.encoder import Parquet
from penstock.log import LogReader, RecordLog
from penstock.log.position import Seq
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config
from penstock.operations.verify.report import VerifyReport
from penstock.operations.verify.verify import verify
from penstock.schema.changes import ChangeBatch
from penstock.sources.demo.source import DemoSource
from penstock.sources.settings import DemoSettings
from penstock.state import BucketState
from tests.operations.verify.planted import rewrite
from tests.operations.verify.sinks import capture, deliver
from tests.operations.verify.test_running import trim

CHANGES = 6_000
FORMATS = {"lake": "parquet", "canal": "canal-json", "debezium": "debezium-json"}


@pytest.fixture(scope="module")
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("beside")
    sinks = {name: {"url": f"./{name}", "format": fmt} for name, fmt in FORMATS.items()}
    value = {"version": 1, "state_dir": "./state", "source": {"type": "demo", "changes": CHANGES}, "sinks": sinks}
    (directory / "penstock.yaml").write_text(yaml.safe_dump(value))
    config = load(directory / "penstock.yaml")
    config.state_dir.mkdir(mode=0o700)
    capture(config, DemoSource(DemoSettings(type="demo", changes=CHANGES)))
    deliver(config)
    return directory


@pytest.fixture
def config(delivered: Path, tmp_path: Path) -> Config:
    """A copy, to be spoilt."""
    shutil.copytree(delivered, tmp_path, dirs_exist_ok=True)
    return load(tmp_path / "penstock.yaml")


def sink(config: Config, name: str) -> Path:
    return config.state_dir.parent / name


def files_of(config: Config, name: str, table: str) -> list[Path]:
    return sorted(path for path in sink(config, name).glob(f"shop/{table}/*/*/CDC*") if path.is_file())


def orders(report: VerifyReport) -> dict[str, int]:
    (found,) = report.sinks
    counts = found.tables["shop.orders"].differences.counts()
    return {name: count for name, count in counts.items() if count and name != "changes"}


def without_acks(config: Config, name: str) -> Config:
    """Of the one sink, of which nothing is acknowledged: as where one table is parked from its first row on, and holds the
    cursor. A sink of another name has none yet."""
    path = config.state_dir.parent / "penstock.yaml"
    value = yaml.safe_load(path.read_text())
    value["sinks"] = {f"{name}2": value["sinks"][name]}
    path.write_text(yaml.safe_dump(value))
    return load(path)


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_before_others_that_are_there_is_lost_not_pending(config: Config, name: str) -> None:
    config = without_acks(config, name)
    (sink(config, name) / "metadata").unlink()
    assert orders(verify(config)) == {}
    rewrite(files_of(config, name, "orders")[0], lambda rows: rows[:3] + rows[4:])
    last = files_of(config, name, "orders")[-1]
    rewrite(last, lambda rows: rows[:-2])  # these may still come
    report = verify(config)
    assert exit_code(report) == 1
    assert orders(report) == {"lost": 1, "pending": 2}, report.sinks[0].faults


@pytest.mark.parametrize("name", FORMATS)
def test_whole_batches_before_others_that_are_there_are_lost(config: Config, name: str) -> None:
    """More than one batch of expected changes: the first file is empty."""
    config = without_acks(config, name)
    (sink(config, name) / "metadata").unlink()
    gone = 0

    def without(rows: list[object]) -> list[object]:
        nonlocal gone
        gone = len(rows)
        return []

    rewrite(files_of(config, name, "orders")[0], without)
    assert orders(verify(config)) == {"lost": gone}


@pytest.mark.parametrize("name", FORMATS)
def test_a_checkpoint_that_is_behind_or_missing_is_told(config: Config, name: str) -> None:
    """All rows are there, and readers, who obey it, see none of them, or not all."""
    metadata = sink(config, name) / "metadata"
    promised = json.loads(metadata.read_text())["checkpoint-ts"]
    assert exit_code(verify(config, sink=name)) == 0
    metadata.write_text(json.dumps({"checkpoint-ts": promised - 1}))
    for _ in range(2):
        report = verify(config, sink=name)
        assert exit_code(report) == 7 and report.equal, report.to_json()
        assert "readers do not see everything that is here: the checkpoint (metadata) is" in report.sinks[0].held[0]
        metadata.unlink(missing_ok=True)


def test_what_the_checkpoint_promises_is_not_pending(config: Config) -> None:
    config = without_acks(config, "lake")
    last = files_of(config, "lake", "orders")[-1]
    rewrite(last, lambda rows: rows[:-2])
    report = verify(config)
    assert exit_code(report) == 1 and orders(report) == {"lost": 2}
    metadata = sink(config, "lake") / "metadata"
    promised = json.loads(metadata.read_text())["checkpoint-ts"]
    metadata.write_text(json.dumps({"checkpoint-ts": promised - (60_000 << 18)}))
    assert orders(verify(config)) == {"pending": 2}
    metadata.write_text("{}")
    report = verify(config)
    assert exit_code(report) == 1 and "metadata at the sink cannot be read" in report.sinks[0].faults[0]


def spoil(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize("name", FORMATS)
def test_a_schema_file_that_is_missing_or_wrong_is_found(config: Config, name: str) -> None:
    path = min((sink(config, name) / "shop" / "orders").glob("*meta/schema_*.json"))  # of its first version
    whole = path.read_bytes()
    path.unlink()
    report = verify(config, sink=name, with_source=False)
    assert exit_code(report) == 1
    assert f"shop.orders: the schema file {path.name} is missing" in report.sinks[0].faults[0]
    path.write_bytes(whole)
    assert exit_code(verify(config, sink=name, with_source=False)) == 0
    spoil(path, lambda value: value["TableColumns"][0].pop("ColumnIsPk"))  # type: ignore[index]
    report = verify(config, sink=name, with_source=False)
    assert exit_code(report) == 1 and "tells other columns" in report.sinks[0].faults[0]
    path.write_bytes(whole)
    spoil(path, lambda value: value.update(Query="another spelling"))
    assert exit_code(verify(config, sink=name, with_source=False)) == 0


def _with_another_old_value(rows: list[bytes]) -> list[bytes]:
    for place, line in enumerate(rows):
        found = re.search(rb'"(?:old|before)":\[?\{.*?"total":"?(\d)', line)
        if found is not None and (b'"UPDATE"' in line or b'"op":"u"' in line):
            at = found.start(1)
            return [*rows[:place], line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :], *rows[place + 1 :]]
    raise AssertionError("there is an update")


@pytest.mark.parametrize("name", ["canal", "debezium"])
def test_a_wrong_value_before_an_update_is_found_in_a_trimmed_log(config: Config, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogReader, "complete", property(lambda _: False))
        report = verify(config, sink=name, with_source=False)
        assert exit_code(report) == 0 and report.sinks[0].differences.changes >= CHANGES, report.to_json()
        rewrite(files_of(config, name, "orders")[-1], _with_another_old_value)
        report = verify(config, sink=name, with_source=False)
    assert exit_code(report) == 1 and orders(report) == {"wrong": 1}, report.to_json()
    assert "column total before" in report.sinks[0].faults[0]


def record(config: Config, name: str, table: str) -> None:
    """As the keeper does with each file."""
    (config.state_dir / "progress").mkdir(mode=0o700, exist_ok=True)
    files = files_of(config, name, table)
    log = RecordLog.open(config.state_dir / "progress", name)
    state = BucketState.open(log)
    change = state.begin()
    path = str(files[-1].relative_to(sink(config, name)))
    facts = DispatcherFacts(1, "shop", table, last_path=path, files=len(files))
    state.store(DISPATCHERS).put(change, str(dispatcher_id(name, "shop", table)), facts.to_json())
    state.commit(change).result(None)
    state.close()
    log.close()


def test_a_table_that_is_gone_from_log_and_sink_is_found(config: Config) -> None:
    """Every entry with its rows was trimmed: only what was recorded tells that they must be there."""
    record(config, "lake", "orders")
    trim(config)
    report = verify(config, sink="lake", with_source=False)
    assert exit_code(report) == 7, report.to_json()  # nothing differs, and nothing was compared
    shutil.rmtree(sink(config, "lake") / "shop" / "orders")
    report = verify(config, sink="lake", with_source=False)
    assert exit_code(report) == 1 and "shop/orders" in report.sinks[0].faults[0], report.to_json()


def test_a_day_that_is_gone_from_log_and_sink_is_found(config: Config) -> None:
    record(config, "lake", "orders")
    trim(config)
    first = files_of(config, "lake", "orders")[0].parent
    assert first != files_of(config, "lake", "orders")[-1].parent, "the demo has several days"
    shutil.rmtree(first)
    report = verify(config, sink="lake", with_source=False)
    assert exit_code(report) == 1 and "files were written" in report.sinks[0].faults[0], report.to_json()


def test_a_dead_letter_that_is_missing_is_found(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config.state_dir.parent / "penstock.yaml"
    value = yaml.safe_load(path.read_text())
    value["sinks"]["lake"]["poison"] = "dead-letter"
    path.write_text(yaml.safe_dump(value))
    config = load(path)
    seqs: list[bytes] = []

    def without(rows: list[dict[str, bytes]]) -> list[dict[str, bytes]]:
        seqs.append(rows[3]["_seq"])
        return rows[:3] + rows[4:]

    rewrite(files_of(config, "lake", "orders")[0], without)
    rows_of = Parquet.rows_of

    def refusing(self: Parquet, batch: ChangeBatch) -> pa.Table:
        if seqs[0] in {one.tobytes() for one in batch.seq}:
            raise ValueError("a value that has no place here")
        return rows_of(self, batch)

    monkeypatch.setattr(Parquet, "rows_of", refusing)
    report = verify(config, sink="lake", with_source=False)
    seq = str(Seq.from_bytes(seqs[0]))
    assert exit_code(report) == 1
    assert f"seq {seq}, which the format refuses, is not among the dead letters" in report.sinks[0].faults[0]
    letter = sink(config, "lake") / "_penstock/dead/shop/orders" / f"{seq.replace(':', '-')}.json"
    letter.parent.mkdir(parents=True)
    letter.write_text("{}")
    assert exit_code(verify(config, sink="lake", with_source=False)) == 0
