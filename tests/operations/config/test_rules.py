"""`rules:` and `mask_key:` in the file: what is refused, with its line, and how they reach the processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.delivery.settings import DeliverySettings
from penstock.operations.config.loading import BadConfig, load
from penstock.operations.config.model import Config, describe, run_settings
from penstock.secret import Secret, revealed
from penstock.spark.job import Job
from penstock.spark.process import job_of
from penstock.spark.task import rules_of
from penstock.supervisor.settings import child_documents

BASE = "source: {type: demo}\nsinks: {lake: {url: ./lake, format: parquet}, raw: {url: ./raw, format: csv, rules: [{table: a.b, drop: [x]}]}}\n"
KEY = "mask-key-canary-0123456789"


def loaded(tmp_path: Path, rules: str, **environment: str) -> Config:
    path = tmp_path / "penstock.yaml"
    path.write_text(f"{BASE}rules:\n{rules}")
    return load(path, environment)


@pytest.mark.parametrize(
    ("rule", "key", "words"),
    [
        ("{table: a}", "rules.0.table", "names no table"),
        ("{table: a.b}", "rules.0", "the rule does nothing"),
        ("{table: a.b, drop: [x], columns: [y]}", "rules.0", "give one of them"),
        ("{table: a.b, filter: 'x >'}", "rules.0.filter", "character 4 of 'x >'"),
        ("{table: a.b, compute: {n: '1 +* 2'}}", "rules.0.compute", "n: a value is wanted here (character 4"),
        ("{table: a.b, compute: {_seq: '1'}}", "rules.0.compute", "every Parquet file"),
        ("{table: a.b, mask: {x: rot13}}", "rules.0.mask.x", "'hmac-sha256'"),
        ("{table: a.b, mask: {x: hmac-sha256}}", "", "hmac-sha256 needs a key: mask_key"),
        ("{table: a.b, maks: {x: redact}}", "rules.0.maks", "unknown key"),
        ("{table: a.b, drop: [x, X]}", "rules.0.drop", "x stands there twice"),
        ("{table: a.b, route: c}", "rules.0", "names no table"),
        ("{table: a.b, route: 'a.{name}'}", "rules.0", "{name} is not known"),
        ("{table: a.b, route: 'a.{table'}", "rules.0", "a brace without its other half"),
    ],
)
def test_what_is_refused(tmp_path: Path, rule: str, key: str, words: str) -> None:
    with pytest.raises(BadConfig) as caught:
        loaded(tmp_path, f"  - {rule}\n")
    [problem] = caught.value.problems
    assert problem.key == key and words in problem.message
    assert problem.line == (4 if key else 0)


def test_a_key_that_is_easily_guessed(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="at least 16 characters"):
        loaded(tmp_path, "  - {table: a.b, mask: {x: hmac-sha256}}\nmask_key: ${K}\n", K="short")


def keyed(tmp_path: Path) -> Config:
    rules = "  - {table: a.b, mask: {x: hmac-sha256, y: null}}\nmask_key: ${K}\n"
    return loaded(tmp_path, rules, K=KEY)


def test_rules_for_every_sink_come_before_its_own(tmp_path: Path) -> None:
    config = keyed(tmp_path)
    assert [rule.mask or rule.drop for rule in config.rules_of("raw")] == [{"x": "hmac-sha256", "y": "null"}, ("x",)]
    assert len(config.rules_of("lake")) == 1


def test_check_shows_rules_and_hides_the_key(tmp_path: Path) -> None:
    shown = {finding.key: finding.value for finding in describe(keyed(tmp_path))}
    assert shown["rules.0.mask.x"] == "hmac-sha256" and shown["sinks.raw.rules.0.drop"] == "x"
    assert shown["mask_key"] == "(hidden)" and KEY not in str(shown)


def test_the_driver_gets_the_key_and_the_job_does_not(tmp_path: Path) -> None:
    settings = run_settings(keyed(tmp_path), once=True)
    assert isinstance(settings.changefeeds["lake"]["mask_key"], Secret) and KEY not in repr(settings)
    value: dict[str, Any] = revealed(settings.changefeeds["raw"])
    job = job_of(tmp_path, "raw", value)
    assert KEY not in job.to_json() and Job.from_json(job.to_json()).rules == job.rules
    key_file = Path(job.mask_key_file)
    key_file.parent.mkdir(parents=True)
    key_file.write_text(KEY)
    assert [named.rule.table for named in rules_of(job).newest.of(("a", "b"))] == ["a.b", "a.b"]
    DeliverySettings.model_validate({"state_dir": tmp_path, "changefeeds": {"raw": value}})


def test_only_the_process_that_masks_gets_the_key(tmp_path: Path) -> None:
    config = loaded(tmp_path, "  - {table: a.b, mask: {x: redact}}\nmask_key: ${K}\n", K=KEY)
    settings = run_settings(config, once=True)
    documents = child_documents(settings, settings.changefeeds)
    assert "mask_key" in documents["driver"]["changefeeds"]["lake"], "rows of before may need it"
    assert "mask_key" not in documents["delivery"]["changefeeds"]["lake"] and KEY not in str(documents["capture"])
