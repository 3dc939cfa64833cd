"""The configuration: every problem at once, each with its line; secrets from the environment only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from penstock.capture.log_config import LogConfig
from penstock.errors import BadInput
from penstock.log import LogSettings
from penstock.operations.config.loading import BadConfig, Problem, load
from penstock.operations.config.model import describe, run_settings
from penstock.operations.config.template import render
from penstock.secret import revealed
from penstock.sources.settings import ServerSettings, SourceSettings
from tests.support.second_user import SECOND_USER, needs_second_user

GOOD = """\
version: 1
source:
  type: mariadb
  host: db
  user: penstock
  password: ${SHOP_PASSWORD}
sinks:
  lake:
    url: ./lake
    format: parquet
    flush: {size: 1MiB, every: 5m}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "penstock.yaml"
    path.write_text(text)
    return path


def problems(tmp_path: Path, text: str, environment: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(BadConfig) as caught:
        load(write(tmp_path, text), environment or {})
    return list(caught.value.problems)


def test_a_good_file_with_a_secret_from_the_environment(tmp_path: Path) -> None:
    config = load(write(tmp_path, GOOD), {"SHOP_PASSWORD": "hush"})
    assert config.source.type == "mariadb"
    assert config.source.secret().reveal() == "hush"
    assert config.state_dir == tmp_path / "penstock-data", "a relative path is taken from the file's directory"
    assert config.sinks["lake"].url == (tmp_path / "lake").as_uri()
    assert config.sinks["lake"].flush.size == 1 << 20
    assert config.sinks["lake"].flush.every == 300.0


def test_check_shows_every_setting_but_no_secret(tmp_path: Path) -> None:
    findings = describe(load(write(tmp_path, GOOD), {"SHOP_PASSWORD": "hush-canary"}))
    text = "\n".join(f"{f.key} {f.value}" for f in findings)
    assert "source.password (hidden)" in text
    assert "hush-canary" not in text
    assert "sinks.lake.flush.every 5m" in text


def test_secrets_of_spark_are_told_by_their_whole_keys(tmp_path: Path) -> None:
    spark = "spark: {hadoop.fs.s3a.secret.key: canary-1, some.url: 'jdbc:x://u:canary-2@h', master: 'local[2]'}\n"
    config = load(write(tmp_path, GOOD + spark), {"SHOP_PASSWORD": "hush-canary"})
    shown = {finding.key: finding.value for finding in describe(config)}
    assert shown["spark.hadoop.fs.s3a.secret.key"] == shown["spark.some.url"] == "(hidden)"
    assert shown["spark.master"] == "local[2]"
    assert "canary" not in str(config) + str(run_settings(config, once=True)) + str(shown)
    assert revealed(run_settings(config, once=True).spark)["hadoop.fs.s3a.secret.key"] == "canary-1"
    assert revealed(run_settings(config, once=True).source)["password"] == "hush-canary"


def test_settings_of_spark_may_be_numbers_and_switches(tmp_path: Path) -> None:
    text = GOOD + "spark: {ui.enabled: true, executor.cores: 2, memory.fraction: 0.5, master: 'local[2]'}\n"
    config = load(write(tmp_path, text), {"SHOP_PASSWORD": "hush"})
    assert config.spark == {
        "ui.enabled": "true",
        "executor.cores": "2",
        "memory.fraction": "0.5",
        "master": "local[2]",
    }
    for wrong in ("{1: x}", "{a: [1]}", "{a: null}", "{a: {b: c}}"):
        (problem,) = problems(tmp_path, GOOD + f"spark: {wrong}\n", {"SHOP_PASSWORD": "hush"})
        assert (problem.key, problem.line) == ("spark", 12)
        assert "a text, a number, true or false" in problem.message


@pytest.mark.parametrize("value", ["2026-13-45", "0x_", "!!int x", "9" * 5000, "{a: [1, 2026-02-30]}"])
def test_what_only_looks_like_a_date_or_a_number_is_refused_with_its_line(tmp_path: Path, value: str) -> None:
    (problem,) = problems(tmp_path, GOOD + f"state_dir: {value}\n")
    assert problem.line == 12
    assert "put a text in quotes" in problem.message


@pytest.mark.parametrize("key", ["state_dir", "sinks.lake.url", "source.host"])
def test_no_text_holds_a_zero_byte(tmp_path: Path, key: str) -> None:
    """A path would end there, and so mean another file."""
    text = {
        "state_dir": GOOD + 'state_dir: "a\\0b"\n',
        "sinks.lake.url": GOOD.replace("./lake", '"a\\0b"'),
        "source.host": GOOD.replace("host: db", 'host: "a\\0b"'),
    }[key]
    assert [(problem.key, problem.message) for problem in problems(tmp_path, text, {"SHOP_PASSWORD": "x"})] == [
        (key, "a zero byte cannot be in a text")
    ]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("${SHOP_PASSWORD}", "[canary-1]", "source.password"),
        ("${SHOP_PASSWORD}", "x\n  password_file: y", "source"),
        ("./lake", "s3://key:canary-1@bucket", "sinks.lake.url"),
        ("./lake", "'kafka://h/t?sasl.password=canary-1'", "sinks.lake.url"),
        ("./lake", "file://u:canary-1@h/x", "sinks.lake.url"),
        ("./lake", "'s3://[canary-1'", "sinks.lake.url"),
        ("sinks:", "spark: {driver.extraJavaOptions: '-Dmy.password=canary-1'}\nsinks:", "spark"),
        ("sinks:", "spark: {executorEnv.MY_TOKEN: 'canary-1'}\nsinks:", "spark"),
        ("sinks:", "spark: {hadoop.fs.s3a.secret.key: [canary-1]}\nsinks:", "spark"),
        ("sinks:", "log: {offload: {url: 's3://canary-1:x@[b'}}\nsinks:", "log.offload.url"),
    ],
)
def test_an_error_about_a_secret_does_not_quote_it(tmp_path: Path, old: str, new: str, key: str) -> None:
    found = problems(tmp_path, GOOD.replace(old, new), {"SHOP_PASSWORD": "hush"})
    assert found[0].key.startswith(key)
    assert "canary" not in str(found)


@pytest.mark.parametrize("special", ["*hush4711", "!hush4711", "!it's'hush4711", "!a!hush4711", "&hush4711 &hush4711"])
def test_a_password_that_means_something_to_yaml_is_not_quoted(tmp_path: Path, special: str) -> None:
    """A hash of MySQL's begins with a star, which is an alias to YAML."""
    path = tmp_path / "penstock.yaml"
    path.write_text(f"version: 1\nsource:\n  type: mariadb\n  password: {special}\n")
    with pytest.raises(BadConfig) as caught:
        load(path)
    assert "hush" not in str(caught.value)
    assert "penstock.yaml:4: yaml: " in str(caught.value)
    assert caught.value.__cause__ is None


@needs_second_user
def test_a_file_that_anybody_could_have_planted_is_not_read(tmp_path: Path) -> None:
    """Settings of Spark's are programs: in a directory for everybody, only a file of ours or of root's counts."""
    path = tmp_path / "penstock.yaml"
    path.write_text(render("demo"))
    tmp_path.chmod(0o1777)
    load(path)
    os.chown(path, SECOND_USER, SECOND_USER)
    with pytest.raises(BadInput, match="everybody can make one"):
        load(path)


def test_every_problem_is_told_with_its_line(tmp_path: Path) -> None:
    text = GOOD.replace("host: db", "hoost: db").replace("format: parquet", "format: avro").replace("1MiB", "1MebiByte")
    found = {(p.key, p.line) for p in problems(tmp_path, text)}
    assert ("source.password", 6) in found, "the variable is not set"
    assert ("source.hoost", 4) in found
    assert ("sinks.lake.format", 10) in found
    assert ("sinks.lake.flush.size", 11) in found


@pytest.mark.parametrize(
    ("url", "words"), [("kafka://broker:9092", "sinks of the kind kafka"), ("s3://key:x@bucket/x", "more than a place")]
)
def test_a_sink_that_cannot_be_is_refused_by_name(tmp_path: Path, url: str, words: str) -> None:
    [problem] = problems(tmp_path, GOOD.replace("./lake", url), {"SHOP_PASSWORD": "x"})
    assert problem.line == 9
    assert words in problem.message


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://bucket/x", "az://container/x"])
def test_a_sink_in_an_object_store(tmp_path: Path, url: str) -> None:
    assert load(write(tmp_path, GOOD.replace("./lake", url)), {"SHOP_PASSWORD": "x"}).sinks["lake"].url == url


def test_what_comes_later_is_refused_and_not_ignored(tmp_path: Path) -> None:
    [problem] = problems(tmp_path, GOOD + "limits: {memory: 1GiB}\n", {"SHOP_PASSWORD": "x"})
    assert (problem.key, problem.line) == ("limits.memory", 12)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "mapping"),
        ("- a\n", "mapping"),
        ("a: [1\n", "expected"),
        ("version: 2\nsource: {type: demo}\n", "version 2"),
    ],
)
def test_what_is_no_configuration(tmp_path: Path, text: str, words: str) -> None:
    assert any(words in p.message for p in problems(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="no such file"):
        load(tmp_path / "none.yaml")


@pytest.mark.parametrize("source", ["demo", "/var/lib/mysql", "mariadb://me@db.internal:3307"])
def test_the_template_is_valid_as_it_stands(tmp_path: Path, source: str) -> None:
    config = load(write(tmp_path, render(source, "./out")), {"PENSTOCK_SOURCE_PASSWORD": "x"})
    assert config.sinks["lake"].format == "parquet"


def test_a_password_on_the_command_line_is_refused() -> None:
    with pytest.raises(BadInput, match="seen by others"):
        render("mariadb://me:secret@db", "./out")


def test_the_log_is_told_what_to_keep_and_where_ledgers_go(tmp_path: Path) -> None:
    told = "log:\n  keep: {for: 7d, size: 1GiB}\n  offload: {url: ../old, keep_local: 10MiB, lag: 1h}\n"
    config = load(write(tmp_path, GOOD + told), {"SHOP_PASSWORD": "hush"})
    settings = LogConfig.model_validate(run_settings(config, once=True).log).settings()  # as capture gets it
    assert (settings.retention_seconds, settings.retention_bytes) == (7 * 86400, 1 << 30)
    assert settings.offload_url == (tmp_path.parent / "old").as_uri()
    assert (settings.offload_threshold_bytes, settings.offload_deletion_lag_seconds) == (10 << 20, 3600)
    untold = load(write(tmp_path, GOOD), {"SHOP_PASSWORD": "hush"}).log.settings()
    assert untold == LogSettings(retention_seconds=0.0, trim_without_cursors=False), "what every sink has goes"


@pytest.mark.parametrize("start", ["now", "snapshot"])
def test_capture_takes_the_source_as_the_run_hands_it_over(tmp_path: Path, start: str) -> None:
    """With every default spelt out."""
    config = load(write(tmp_path, GOOD.replace("source:\n", f"source:\n  start: {start}\n")), {"SHOP_PASSWORD": "x"})
    given = TypeAdapter(SourceSettings).validate_python(revealed(run_settings(config, once=True).source))
    assert isinstance(given, ServerSettings) and given == config.source and given.start == start


def test_what_to_load_is_refused_where_nothing_is_loaded_by_itself(tmp_path: Path) -> None:
    told = GOOD.replace("source:\n", "source:\n  snapshot: {tables: {exclude: ['a.b']}}\n")
    (problem,) = problems(tmp_path, told, {"SHOP_PASSWORD": "x"})
    assert "says what start: snapshot loads" in problem.message
    for_backfills = GOOD.replace("source:\n", "source:\n  snapshot: {parallel: 4}\n")
    assert load(write(tmp_path, for_backfills), {"SHOP_PASSWORD": "x"})


@pytest.mark.parametrize(
    ("told", "key", "says"),
    [
        ("keep: {for: soon}", "log.keep.for", "'soon' is not a quantity"),
        ("keep: {days: 7}", "log.keep.days", "unknown key"),
        ("ledger: 1KiB", "log.ledger", "64KiB"),
        ("offload: {url: 'ftp://x/y'}", "log.offload.url", "no URL of an object store"),
        ("offload: {url: 's3://key:secret@b/y'}", "log.offload.url", "carries more than a place"),
        ("offload: {lag: 1h}", "log.offload.url", "field required"),
    ],
)
def test_what_the_log_cannot_be_told(tmp_path: Path, told: str, key: str, says: str) -> None:
    (problem,) = problems(tmp_path, f"{GOOD}log:\n  {told}\n", {"SHOP_PASSWORD": "hush"})
    assert problem.key == key
    assert says in problem.message
    assert problem.line >= 12
    assert "secret" not in problem.message


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("ledger: 1KiB", "input should be greater than or equal to 64KiB"),
        ("preallocate: 2PiB", "2PiB is too large: at most 1PiB"),
        ("cache: 5", "a group of settings is wanted here, such as `{name: value}`"),
    ],
)
def test_limits_are_told_as_people_write_them(tmp_path: Path, setting: str, words: str) -> None:
    (found,) = problems(tmp_path, GOOD + f"log: {{{setting}}}\n", {"SHOP_PASSWORD": "x"})
    assert found.message == words


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    found = problems(tmp_path, GOOD + "log: {ledger: 1MiB, ledger: 2MiB}\nversion: 1\n", {"SHOP_PASSWORD": "x"})
    last = len(GOOD.splitlines()) + 1
    assert [(p.key, p.line, p.message) for p in found] == [
        ("log.ledger", last, f"it stands here twice; the first is in line {last}"),
        ("version", last + 1, "it stands here twice; the first is in line 1"),
    ]


@pytest.mark.parametrize(
    ("state_dir", "url"),
    [("lake/state", "lake"), ("state", "state/lake"), ("both", "both"), ("x/../lake/state", "./lake")],
)
def test_a_sink_and_the_state_do_not_lie_in_each_other(tmp_path: Path, state_dir: str, url: str) -> None:
    text = (
        f"version: 1\nstate_dir: {state_dir}\nsource: {{type: demo}}\nsinks:\n  lake: {{url: {url}, format: parquet}}\n"
    )
    (found,) = problems(tmp_path, text, {})
    assert (found.key, found.line) == ("sinks.lake.url", 5) and "lie in each other" in found.message


def test_a_sink_beside_the_state_is_fine(tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text(
        "version: 1\nstate_dir: lake-state\nsource: {type: demo}\nsinks:\n  lake: {url: lake, format: parquet}\n"
    )
    config = load(tmp_path / "penstock.yaml")
    shown = {finding.key: finding.value for finding in describe(config)}
    # As they stand in a file, and not as Python has them.
    assert shown["sinks.lake.only"] == shown["source.tables.include"] == "*.*"
    assert shown["log.keep.for"] == "0s" and shown["state.checkpoint_at_roll"] == "true"


@pytest.mark.parametrize(("one", "other"), [("./l", "l/"), ("./l", "./l/b"), ("s3://b/x/y", "s3://b/x")])
def test_two_sinks_do_not_lie_in_each_other(tmp_path: Path, one: str, other: str) -> None:
    text = (
        "version: 1\nsource: {type: demo}\nsinks:\n"
        f"  a: {{url: '{one}', format: csv}}\n  b: {{url: '{other}', format: parquet}}\n"
    )
    (found,) = problems(tmp_path, text, {})
    assert (found.key, found.line) == ("sinks.b.url", 5) and "of the sink a" in found.message
    load(write(tmp_path, text.replace(f"'{other}'", "'s3://b/xy'")), {})


@pytest.mark.parametrize(
    ("source", "key", "says"),
    [
        ("{type: oracle}", "source", "it must be one of 'demo'"),
        ("{host: h}", "source", "'type' is missing"),
        ("{type: mysql, host: h, user: u, start: yesterday}", "source.start", "'now' or 'snapshot'"),
        ("{type: mariadb, host: h, user: u, start: {gtid: x}}", "source.start", "not a GTID"),
        ("{type: mysql, host: h, user: u, password: ab, password_file: x}", "source", "not both"),
        ("{type: mysql, host: h, user: u, port: abc}", "source.port", "integer"),
        ("{type: mysql, host: h}", "source.user", "required"),
    ],
)
def test_a_problem_is_told_once_under_a_key_of_the_file(tmp_path: Path, source: str, key: str, says: str) -> None:
    text = f"version: 1\nsource: {source}\nsinks: {{lake: {{url: ./lake, format: csv}}}}\n"
    (found,) = problems(tmp_path, text, {})
    assert (found.key, found.line) == (key, 2) and says in found.message
