"""The key of the masks in tasks: byte for byte that of the configuration, so that what they hash is what verify and tail hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.files.private import make_private_directory
from penstock.rules.sql.rows import NO_SQL
from penstock.rules.versions import key_fingerprint
from penstock.spark.process import job_of, keep_mask_key, mask_key_file
from penstock.spark.task import versioned_rules

KEYS = ["a-key-of-a-file-with-other-line-ends\r", "two\r\nlines", "clé"]


@pytest.mark.parametrize("key", KEYS)
def test_the_key_is_that_of_the_configuration(tmp_path: Path, key: str) -> None:
    settings = {"format": "parquet", "mask_key": key, "rules": [{"table": "a.b", "mask": {"c": "hmac-sha256"}}]}
    make_private_directory(mask_key_file(tmp_path, "lake").parent)
    keep_mask_key(tmp_path, "lake", settings)
    rules = versioned_rules(job_of(tmp_path, "lake", settings), NO_SQL)
    assert rules.versions[0].settings.key == key_fingerprint(key)
    assert rules.has_key(0) and rules.newest._key == key.encode()
