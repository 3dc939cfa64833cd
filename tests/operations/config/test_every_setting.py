"""Every setting of the log, its cache and its state: in penstock.yaml, in the docs, and refused by its key where it is bad."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.capture.log_config import CacheConfig
from penstock.capture.process import CaptureSettings
from penstock.delivery.settings import ChangefeedSettings
from penstock.encode.joining import options_of
from penstock.encode.settings import OPTIONS
from penstock.log import Log, LogSettings, configure_cache
from penstock.operations.config.loading import BadConfig, load
from penstock.operations.config.model import Config, describe, run_settings
from penstock.spark import task
from penstock.spark.job import Job
from penstock.spark.log_follower import LogFollower
from penstock.spark.process import job_of
from penstock.state import BucketState, StateSettings

DOCS = Path(__file__).resolve().parents[3] / "docs"
BASE = "source: {type: demo}\nsinks: {lake: {url: ./lake, format: parquet}}\n"
SIZE, TIME, COUNT, RATIO, FLAG = ("1MiB", 1 << 20), ("90m", 5400.0), ("7", 7), ("0.5", 0.5), ("false", False)
BAD_SIZE, BAD_TIME, BAD_COUNT = (
    ("-1", "soon", "1MebiByte", ".inf", "[]", "true"),
    ("-1", "soon", ".nan", "4y"),
    ("-1", "1.5", "x"),
)


class Setting(NamedTuple):
    """Where a setting stands in the file, a value with the result, and values that are refused."""

    key: str
    good: tuple[str, Any]
    bad: tuple[str, ...]


LOG = {
    "ledger_bytes_max": Setting("log.ledger", SIZE, (*BAD_SIZE, "1KiB", "8GiB")),
    "ledger_entries_max": Setting("log.ledger_entries_max", COUNT, (*BAD_COUNT, "0")),
    "ledger_age_min_seconds": Setting("log.ledger_age_min", TIME, BAD_TIME),
    "ledger_age_max_seconds": Setting("log.ledger_age_max", TIME, BAD_TIME),
    "ledger_idle_max_seconds": Setting("log.ledger_idle_max", TIME, BAD_TIME),
    "preallocate_bytes": Setting("log.preallocate", SIZE, BAD_SIZE),
    "waiting_bytes_max": Setting("log.waiting_max", SIZE, (*BAD_SIZE, "0")),
    "ledger_switches_max": Setting("log.ledger_switches_max", COUNT, BAD_COUNT),
    "stall_seconds_max": Setting("log.stall_max", TIME, (*BAD_TIME, "0s")),
    "retention_seconds": Setting("log.keep.for", TIME, BAD_TIME),
    "retention_bytes": Setting("log.keep.size", SIZE, BAD_SIZE),
    "maintenance_interval_seconds": Setting("log.maintenance_interval", TIME, BAD_TIME),
    "cursor_inactive_seconds_max": Setting("log.cursor_inactive_max", TIME, BAD_TIME),
    "read_attempts_max": Setting("log.read_attempts_max", COUNT, (*BAD_COUNT, "0")),
    "offload_url": Setting("log.offload.url", ("file:///old", "file:///old"), ("ftp://x/y", "5")),
    "offload_threshold_bytes": Setting("log.offload.keep_local", SIZE, BAD_SIZE),
    "offload_deletion_lag_seconds": Setting("log.offload.lag", TIME, BAD_TIME),
    "offload_part_bytes": Setting("log.offload.part", SIZE, (*BAD_SIZE, "0")),
}
CACHE = {
    "bytes_max": Setting("log.cache.size", SIZE, BAD_SIZE),
    "in_flight_bytes_max": Setting("log.cache.in_flight", SIZE, (*BAD_SIZE, "0")),
}
STATE = {
    "engine": Setting("state.engine", ("rocksdb", "rocksdb"), ("leveldb", "1")),
    "checkpoints_kept": Setting("state.checkpoints_kept", COUNT, (*BAD_COUNT, "1")),
    "checkpoint_bytes": Setting("state.checkpoint", SIZE, (*BAD_SIZE, "0")),
    "checkpoint_at_roll": Setting("state.checkpoint_at_roll", FLAG, ("5", "x")),
    "merge_runs_max": Setting("state.merge_runs_max", COUNT, (*BAD_COUNT, "0")),
    "merge_ratio": Setting("state.merge_ratio", RATIO, ("0", "-1", "x", ".inf")),
    "spare_ratio_max": Setting("state.spare_ratio_max", RATIO, ("0", "-1", "x", ".nan")),
    "scrub_interval_seconds": Setting("state.scrub_interval", TIME, (*BAD_TIME, "0s")),
    "scrub_bytes_per_second": Setting("state.scrub_per_second", SIZE, (*BAD_SIZE, "0")),
    "merge_in_background": Setting("state.merge_in_background", FLAG, ("5", "x")),
    "start_empty": Setting("state.start_empty", ("true", True), ("5", "x")),
    "cache_bytes": Setting("state.cache", SIZE, BAD_SIZE),
}
TEXT_END = Setting("", ("lf", "lf"), ("cr", "5"))
# Of the formats, by the name of the section of a sink.
FORMATS = {
    "csv": {
        "delimiter": Setting("csv.delimiter", ("'|@|'", "|@|"), ("''", "abcd", "5", "'-'")),
        "quote": Setting("csv.quote", ('"\'"', "'"), ("\"''\"", "a")),
        "null_string": Setting("csv.null_string", ("'NULL'", "NULL"), ("'a,b'", "'0'", "x" * 17)),
        "include_commit_ts": Setting("csv.include_commit_ts", ("true", True), ("5", "x")),
        "binary_encoding": Setting("csv.binary_encoding", ("hex", "hex"), ("base32", "5")),
        "output_old_value": Setting("csv.output_old_value", ("true", True), ("5", "x")),
        "output_handle_key": Setting("csv.output_handle_key", ("true", True), ("5", "x")),
        "output_field_header": Setting("csv.output_field_header", ("true", True), ("5", "x")),
        "terminator": TEXT_END._replace(key="csv.terminator"),
    },
    "canal-json": {
        "old": Setting("canal_json.old", ("all", "all"), ("none", "5")),
        "terminator": TEXT_END._replace(key="canal_json.terminator"),
    },
    "debezium-json": {
        "include_schema": Setting("debezium_json.include_schema", ("true", True), ("5", "x")),
        "output_old_value": Setting("debezium_json.output_old_value", FLAG, ("5", "x")),
        "decimal": Setting("debezium_json.decimal", ("double", "double"), ("precise", "5")),
        "name": Setting("debezium_json.name", ("prod", "prod"), ("'a b'", "''")),
        "terminator": Setting("debezium_json.terminator", ("crlf", "crlf"), ("cr", "5")),
    },
    "parquet": {
        "compression": Setting("parquet.compression", ("snappy", "snappy"), ("lzo", "5")),
    },
}


def sink_of(tmp_path: Path, format_name: str, key: str, value: str) -> Config:
    section, _, name = key.partition(".")
    path = tmp_path / "penstock.yaml"
    path.write_text(
        f"source: {{type: demo}}\nsinks:\n  lake: {{url: ./lake, format: {format_name}, {section}: {{{name}: {value}}}}}\n"
    )
    return load(path)


def loaded(tmp_path: Path, key: str, value: str) -> Config:
    section, *rest = key.split(".")
    inner = f"{rest[-1]}: {value}"
    if rest[:-1] == ["offload"] and rest[-1] != "url":
        inner += ", url: file:///old"
    text = f"{{{inner}}}" if len(rest) == 1 else f"{{{rest[0]}: {{{inner}}}}}"
    path = tmp_path / "penstock.yaml"
    path.write_text(f"{BASE}{section}: {text}\n")
    return load(path)


def as_capture_gets_it(config: Config) -> CaptureSettings:
    """Through `penstock run`, which passes sections on as JSON."""
    run = run_settings(config, once=True)
    return CaptureSettings.model_validate(
        {"state_dir": "/s", "source": run.source, "log": run.log, "state": run.state, "until": None}
    )


def test_no_setting_is_left_out() -> None:
    always = {"trim_without_cursors", "first_ledger"}  # what a flow, or its recovery, needs, whatever anybody says
    assert set(LOG) | always == {field.name for field in dataclasses.fields(LogSettings)}
    assert set(STATE) == {field.name for field in dataclasses.fields(StateSettings)}
    assert set(CACHE) == set(inspect.signature(configure_cache).parameters)
    assert {name: set(options) for name, options in FORMATS.items()} == {
        name: set(options.model_fields) for name, options in OPTIONS.items()
    }


@pytest.mark.parametrize(("format_name", "name"), [(f, name) for f, options in FORMATS.items() for name in options])
def test_of_a_format(tmp_path: Path, format_name: str, name: str) -> None:
    """In the task that encodes and in the delivery process, and in both nothing else is changed."""
    key, (text, value), bad = FORMATS[format_name][name]
    run = run_settings(sink_of(tmp_path, format_name, key, text), once=True)
    expected = OPTIONS[format_name]().model_copy(update={name: value})
    assert ChangefeedSettings.model_validate(run.changefeeds["lake"]).format_options == expected
    job = Job.from_json(job_of(tmp_path, "lake", run.changefeeds["lake"]).to_json())
    assert options_of(job.format, job.format_options) == expected
    for wrong in bad:
        with pytest.raises(BadConfig) as caught:
            sink_of(tmp_path, format_name, key, wrong)
        assert all(problem.key.startswith(f"sinks.lake.{key.partition('.')[0]}") for problem in caught.value.problems)


def test_options_of_another_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="csv: has options of another format; this sink writes parquet"):
        sink_of(tmp_path, "parquet", "csv.quote", "x")


def test_the_docs_and_check_name_every_option(tmp_path: Path) -> None:
    page = (DOCS / "sink-settings.md").read_text()
    for format_name, options in FORMATS.items():
        defaults = OPTIONS[format_name]()
        shown = {f.key for f in describe(sink_of(tmp_path, format_name, next(iter(options.values())).key, next(iter(options.values())).good[0]))}  # fmt: skip
        for name, setting in options.items():
            row = f"| `{setting.key}` | `{type(defaults).__name__}.{name}` | {_written(getattr(defaults, name))} | "
            assert row in page, row
            assert f"sinks.lake.{setting.key}" in shown


@pytest.mark.parametrize("name", LOG)
def test_of_the_log(tmp_path: Path, name: str) -> None:
    key, (text, value), _ = LOG[name]
    settings = as_capture_gets_it(loaded(tmp_path, key, text)).log.settings()
    assert getattr(settings, name) == value
    others = {field.name for field in dataclasses.fields(LogSettings)} - {name}
    default = LogSettings(retention_seconds=None if name == "retention_bytes" else 0.0, trim_without_cursors=False)
    changed = {one for one in others if getattr(settings, one) != getattr(default, one)}
    assert changed <= {"offload_url", "offload_threshold_bytes"}, "a setting changes nothing else"


@pytest.mark.parametrize("name", STATE)
def test_of_the_state(tmp_path: Path, name: str) -> None:
    key, (text, value), _ = STATE[name]
    settings = as_capture_gets_it(loaded(tmp_path, key, text)).state.settings()
    assert settings == dataclasses.replace(StateSettings(), **{name: value})


@pytest.mark.parametrize("name", CACHE)
def test_of_the_cache_in_every_process_that_reads_the_log(tmp_path: Path, name: str) -> None:
    key, (text, value), _ = CACHE[name]
    config = loaded(tmp_path, key, text)
    cache = as_capture_gets_it(config).log.cache
    job = job_of(tmp_path, "lake", run_settings(config, once=True).changefeeds["lake"])
    found = {
        "bytes_max": (cache.size, job.cache_bytes_max),
        "in_flight_bytes_max": (cache.in_flight, job.in_flight_bytes_max),
    }
    assert found[name] == (value, value)


def test_how_often_a_read_is_tried_in_every_process_that_reads_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loaded(tmp_path, "log.read_attempts_max", "7")
    job = job_of(tmp_path, "lake", run_settings(config, once=True).changefeeds["lake"])
    monkeypatch.setattr(task, "_readers", {})
    with Log.open(job.log_directory, LogSettings(maintenance_interval_seconds=0)) as log:
        with task.open_reader(job) as reader:
            assert reader._read_attempts_max == 7
        BucketState.open(log).close()
        with LogFollower.open(job.log_directory, read_attempts_max=job.read_attempts_max)._reader as reader:
            assert reader._read_attempts_max == 7


def test_what_is_left_out_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    path.write_text(BASE)
    capture = as_capture_gets_it(load(path))
    assert capture.log.settings() == LogSettings(retention_seconds=0.0, trim_without_cursors=False), (
        "what every sink has"
    )
    assert capture.state.settings() == StateSettings()
    defaults = inspect.signature(configure_cache).parameters["in_flight_bytes_max"].default
    assert CacheConfig().in_flight == defaults


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in {**LOG, **STATE}
        if "None" in str({**LogSettings.__annotations__, **StateSettings.__annotations__}[name])
    ],
)
def test_no_limit_is_null(tmp_path: Path, name: str) -> None:
    key = {**LOG, **STATE}[name].key
    if not key.startswith("log.offload"):  # the whole section is left out instead
        capture = as_capture_gets_it(loaded(tmp_path, key, "null"))
        assert getattr(capture.log.settings() if name in LOG else capture.state.settings(), name) is None


@pytest.mark.parametrize("setting", [*LOG.values(), *CACHE.values(), *STATE.values()], ids=lambda setting: setting.key)
def test_a_bad_value_is_refused_with_its_key_and_what_is_allowed(tmp_path: Path, setting: Setting) -> None:
    for value in setting.bad:
        with pytest.raises(BadConfig) as caught:
            loaded(tmp_path, setting.key, value)
        [problem] = caught.value.problems
        assert problem.key == setting.key
        assert problem.line == 3
        assert any(word in problem.message for word in ("should be", "such as", "valid", "URL")), problem.message


@pytest.mark.parametrize(("page", "settings"), [("log-settings.md", {**LOG, **CACHE}), ("state.md", STATE)])
def test_the_docs_name_every_key_with_its_setting_and_default(
    page: str, settings: dict[str, Setting], tmp_path: Path
) -> None:
    config: Any = loaded(tmp_path, "log.offload.url", "file:///old")
    rows = {}
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) >= 4:
            rows[cells[0].strip("`")] = cells
    for name, setting in settings.items():
        cells = rows[setting.key]
        assert name in cells[1]
        assert cells[3], "says what is allowed"
        if setting.key != "log.offload.url":  # has no default
            assert cells[2] == _written(_default(config, setting.key)), setting.key


def _default(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, "for_" if part == "for" else part)
    return config


def _written(value: Any) -> str:
    """As the file would have it."""
    if value is None:
        return "`null`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f"`{value}`"
    if isinstance(value, float) and (value >= 60 or not value):
        units = {"d": 86400, "h": 3600, "m": 60, "s": 1}
        unit = next(one for one, size in units.items() if value % size == 0 and (value >= size or one == "s"))
        return f"`{int(value // units[unit])}{unit}`"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if isinstance(value, int) and value >= size and value % size == 0:
            return f"`{value // size}{unit}`"
    return f"`{value}`"


def test_check_shows_them(tmp_path: Path) -> None:
    shown = {finding.key for finding in describe(loaded(tmp_path, "log.offload.url", "file:///old"))}
    for setting in (*LOG.values(), *CACHE.values(), *STATE.values()):
        if setting.key not in (
            "log.keep.for",
            "log.keep.size",
            "log.ledger_idle_max",
            "log.cursor_inactive_max",
        ):  # no limit
            assert setting.key in shown
