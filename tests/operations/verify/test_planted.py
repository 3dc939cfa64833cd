"""Verify is shown to fail: on a lost row, a doubled row, a swapped pair and a wrong value, in each format."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from penstock.cli.verify import exit_code
from penstock.operations.config.loading import load
from penstock.operations.config.model import Config
from penstock.operations.verify import sink_tables, source_comparison
from penstock.operations.verify.sink_files import data_directories
from penstock.operations.verify.verify import verify
from penstock.sources.demo.source import DemoSource
from penstock.sources.settings import DemoSettings
from tests.delivery.rig import local_objects
from tests.operations.verify.planted import (
    rewrite,
    with_a_row_twice,
    with_a_swapped_pair,
    with_a_wrong_value,
    without_a_row,
)
from tests.operations.verify.sinks import capture, deliver

SINKS = {"lake": "parquet", "canal": "canal-json", "debezium": "debezium-json"}
CHANGES = 20_000


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    directory = tmp_path_factory.mktemp("planted")
    sinks = {name: {"url": f"./{name}", "format": fmt} for name, fmt in SINKS.items()}
    value = {"version": 1, "state_dir": "./state", "source": {"type": "demo", "changes": CHANGES}, "sinks": sinks}
    (directory / "penstock.yaml").write_text(yaml.safe_dump(value))
    config = load(directory / "penstock.yaml")
    config.state_dir.mkdir(mode=0o700)
    assert isinstance(config.source, DemoSettings)
    capture(config, DemoSource(config.source))
    deliver(config)
    return config


def files_of(config: Config, sink: str, table: str) -> list[Path]:
    root = Path(urlsplit(config.sinks[sink].url).path)
    return [root / file for each in data_directories(local_objects(root)) if each.table == table for file in each.files]


@pytest.mark.parametrize("limit", [None, 1000])
def test_what_was_delivered_is_equal(config: Config, limit: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where next to nothing may be held in memory: files are mapped, and tables laid down in parts."""
    if limit is not None:
        monkeypatch.setattr(sink_tables, "HELD_BYTES_MAX", limit)
        monkeypatch.setattr(source_comparison, "ROWS_BYTES_MAX", 100 * limit)
    report = verify(config)
    assert exit_code(report) == 0, report.to_json()
    for sink in report.sinks:
        assert sink.whole and sink.differences.changes >= CHANGES
        assert sink.source_equal == sink.tables_count == 4


@pytest.mark.parametrize("sink", SINKS)
def test_planted_faults_are_found(config: Config, sink: str) -> None:
    """Each in turn, and nothing else."""
    path = files_of(config, sink, "orders")[0]
    whole = path.read_bytes()
    try:
        for kind, change in (
            ("lost", without_a_row),
            ("doubled", with_a_row_twice),
            ("misplaced", with_a_swapped_pair),
            ("wrong", with_a_wrong_value),
        ):
            path.write_bytes(whole)
            rewrite(path, change)
            report = verify(config, sink=sink, with_source=False)
            counts = report.sinks[0].differences.counts()
            assert exit_code(report) == 1
            assert {name: count for name, count in counts.items() if count and name != "changes"} == {kind: 1}
            assert report.sinks[0].faults[0].startswith("shop.orders: "), kind
    finally:
        path.write_bytes(whole)
    assert verify(config, sink=sink, with_source=False).equal


@pytest.mark.parametrize("sink", SINKS)
def test_each_file_that_was_cut_off_is_named(config: Config, sink: str) -> None:
    paths = [files_of(config, sink, table)[0] for table in ("orders", "customers")]
    whole = {path: path.read_bytes() for path in paths}
    try:
        for path, content in whole.items():
            path.write_bytes(content[:-700])
        report = verify(config, sink=sink, with_source=False)
    finally:
        for path, content in whole.items():
            path.write_bytes(content)
    assert exit_code(report) == 1
    for path in paths:
        (named,) = [
            fault
            for fault in report.sinks[0].faults
            if "cannot be read" in fault and str(path).endswith(fault.split()[0])
        ]
        assert named


def test_a_line_that_was_altered_elsewhere_is_noted(config: Config) -> None:
    path = files_of(config, "canal", "orders")[0]
    whole = path.read_bytes()
    try:
        path.write_bytes(whole.replace(b'"customer_id":3', b'"customer_id":4', 1))  # its sqlType
        assert path.read_bytes() != whole
        report = verify(config, sink="canal", with_source=False)
    finally:
        path.write_bytes(whole)
    assert report.equal and "shop.orders: some lines are not those that this version writes" in report.sinks[0].notes[0]


@pytest.mark.parametrize("sink", ["lake", "canal", "debezium"])
def test_rows_among_those_of_another_version_are_found(config: Config, sink: str) -> None:
    """Readers take the columns of the version in whose directory a row is: here all rows are in that of a later one."""
    (directory,) = {path.parent.parent for path in files_of(config, sink, "products")}
    version = int(directory.name.removeprefix("version="))
    later = directory.with_name(directory.name.replace(str(version), str(version + 1)))
    directory.rename(later)
    try:
        report = verify(config, sink=sink, with_source=False)
    finally:
        later.rename(directory)
    found = report.sinks[0].differences
    assert exit_code(report) == 1 and found.misplaced and not (found.lost or found.unknown), report.to_json()
    assert f"of version {version + 1}, not of {version}" in str(report.sinks[0].faults)


@pytest.mark.parametrize("sink", ["canal", "debezium"])
def test_a_line_of_another_table_is_found(config: Config, sink: str) -> None:
    """Who reads lines of several tables knows by nothing else whose rows they are."""
    path = files_of(config, sink, "orders")[0]
    whole = path.read_bytes()
    try:
        path.write_bytes(whole.replace(b'"table":"orders"', b'"table":"others"', 1))
        assert path.read_bytes() != whole
        report = verify(config, sink=sink, with_source=False)
    finally:
        path.write_bytes(whole)
    assert exit_code(report) == 1 and report.sinks[0].differences.wrong == 1, report.to_json()
    assert "'others' instead of 'orders'" in report.sinks[0].faults[0]


@pytest.mark.parametrize("limit", [None, 100_000])
def test_the_keys_that_differ_from_the_source_are_named(
    config: Config, limit: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log says so too; this comparison does not need it."""
    if limit is not None:
        monkeypatch.setattr(source_comparison, "ROWS_BYTES_MAX", limit)
    path = files_of(config, "lake", "products")[-1]
    last = pq.read_table(path, partitioning=None).to_pylist()[-1]
    whole = path.read_bytes()
    try:
        rewrite(path, lambda rows: [*rows[:-1], {**rows[-1], "title": "planted"}])
        report = verify(config, sink="lake")
    finally:
        path.write_bytes(whole)
    assert exit_code(report) == 1
    found = report.sinks[0].tables["shop.products"].with_source
    assert found is not None and (found.different, found.only_at_sink, found.only_at_source) == (1, 0, 0)
    assert found.keys[0].startswith(f"id = {last['id']!r}: title 'planted' at the sink, '")
    assert report.sinks[0].source_equal == 3


def _old_value(line: bytes) -> bytes | None:
    """The line with another value before its update; None if it has none."""
    found = re.search(rb'"(?:old|before)":\[?\{.*?"total":"?(\d)', line)
    at = found.start(1) if found is not None and (b'"UPDATE"' in line or b'"op":"u"' in line) else None
    return None if at is None else line[:at] + bytes([line[at] ^ 1]) + line[at + 1 :]


@pytest.mark.parametrize("sink", ["canal", "debezium"])
def test_a_wrong_value_before_an_update_is_found(config: Config, sink: str) -> None:
    for path in files_of(config, sink, "orders"):
        whole = path.read_bytes()
        lines = whole.splitlines(keepends=True)
        place, changed = next(((n, made) for n, line in enumerate(lines) if (made := _old_value(line))), (0, None))
        if changed is not None:
            break
    assert changed is not None, "there is an update"
    try:
        path.write_bytes(b"".join([*lines[:place], changed, *lines[place + 1 :]]))
        report = verify(config, sink=sink, with_source=False)
    finally:
        path.write_bytes(whole)
    assert exit_code(report) == 1 and report.sinks[0].differences.wrong == 1, report.to_json()
    assert "column total before" in report.sinks[0].faults[0]


def test_a_column_that_nobody_wrote_is_found(config: Config) -> None:
    """It may be what a rule was to leave out."""
    path = files_of(config, "lake", "orders")[0]
    whole = path.read_bytes()
    table = pq.read_table(path, partitioning=None)
    try:
        pq.write_table(table.append_column("leak", pa.array(["x"] * table.num_rows)), path)
        report = verify(config, sink="lake", with_source=False)
    finally:
        path.write_bytes(whole)
    assert exit_code(report) == 1 and report.sinks[0].differences.wrong == table.num_rows
    assert "a column leak that nobody wrote" in report.sinks[0].faults[0]
