"""A secret shows itself nowhere; and which settings are secrets."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from penstock.observe.logging import redact
from penstock.secret import (
    Secret,
    environment_without_secrets,
    harmless,
    is_secret_key,
    is_secret_setting,
    is_secret_value,
    revealed,
)

TEXT = "hush-4711/ä"


class Model(BaseModel):
    password: Secret | None = None
    many: dict[str, str | Secret] = {}


@dataclass
class Plain:
    password: Secret


def test_a_secret_is_shown_nowhere() -> None:
    secret = Secret(TEXT)
    model = Model(password=secret, many={"a": secret})
    shown = [
        *(str(secret), repr(secret), f"{secret}", f"{secret:>20}", "%s" % secret, "{}".format(secret)),  # noqa: UP031, UP032
        *(repr(model), str(model), str(model.model_dump()), model.model_dump_json(), str(Plain(secret)), str([secret])),
    ]
    assert not [text for text in shown if "4711" in text]
    assert secret.reveal() == TEXT
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps({"password": secret})
    with pytest.raises(TypeError):
        copy.copy(secret)


def test_it_is_hidden_in_every_log_line_from_its_beginning() -> None:
    Secret("a-new-one-815")
    assert redact("user:a-new-one-815@host") == "user:***@host"
    Secret("abc")
    assert redact("abc") == "abc", "too short to be worth the loss of every abc"


def test_only_a_text_becomes_a_secret_and_a_wrong_one_is_not_quoted() -> None:
    assert Model.model_validate({"password": TEXT}).password == Secret(TEXT)
    assert TypeAdapter(Model).validate_json(json.dumps({"password": TEXT})).password == Secret(TEXT)
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"password": ["hush-4711"]})
    assert "hush" not in str(caught.value.errors(include_input=False))


def test_only_the_pipe_to_a_child_reveals() -> None:
    value: dict[str, Any] = {"source": {"password": Secret(TEXT), "port": 1}, "list": [Secret("x"), "y"]}
    assert revealed(value) == {"source": {"password": TEXT, "port": 1}, "list": ["x", "y"]}


@pytest.mark.parametrize(
    "key",
    [
        "hadoop.fs.s3a.secret.key",
        "hadoop.fs.s3a.access.key",
        "fs.azure.account.key.acme.dfs.core.windows.net",
        "fs.azure.sas.box.acme",
        "spark.ssl.keyPassword",
        "spark.authenticate.secret",
        "spark.kubernetes.authenticate.oauthToken",
        "hadoop.fs.gs.auth.service.account.private.key.id",
        "hadoop.hadoop.security.credential.provider.path",
        "my.store.pwd",
    ],
)
def test_the_whole_key_tells_a_secret(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key", ["master", "sql.shuffle.partitions", "driver.memory", "hadoop.fs.s3a.endpoint", "ui.port"]
)
def test_other_settings_are_shown(key: str) -> None:
    assert not is_secret_key(key)


def test_a_switch_is_no_secret_whatever_its_name() -> None:
    """It would be hidden as a text: every `false` in log lines, and every variable with one, would be gone."""
    assert not is_secret_setting("security.credentials.hive.enabled", "False")
    assert is_secret_setting("hadoop.fs.s3a.secret.key", "x")
    assert is_secret_setting("some.url", "jdbc:mysql://me:pw@host/db")


@pytest.mark.parametrize(
    "value",
    [
        "jdbc:postgresql://host/db?user=me&pwd=hush",
        "X required username=me password = hush;",
        "Authorization: Bearer hush",
        "https://hush@repository/maven",
    ],
)
def test_credentials_inside_of_a_value(value: str) -> None:
    assert is_secret_setting("some.setting", value)


def test_a_container_is_no_user() -> None:
    assert not is_secret_setting("some.path", "abfss://container@account.dfs.core.windows.net/lake")


def test_secrets_inside_of_values() -> None:
    assert is_secret_value("jdbc:mysql://me:pw@host/db")
    assert is_secret_value("jdbc:sqlserver://host;password=x")
    assert is_secret_value("-Djavax.net.ssl.trustStorePassword=x")
    assert not is_secret_value("s3a://bucket/path@2x")
    assert not is_secret_value("-Dlog.level=debug")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://key:hush@bucket/a", "s3://***@bucket/a"),
        ("kafka://b:9092/t?password=hush", "kafka://b:9092/t?***"),
        ("https://x/y#hush", "https://x/y?***"),
        ("s3://[hush", "s3://***"),
        ("file:///a/b", "file:///a/b"),
        ("/a/b", "/a/b"),
    ],
)
def test_a_url_in_a_message(url: str, shown: str) -> None:
    assert harmless(url) == shown


def test_a_child_does_not_inherit_variables_that_hold_a_secret() -> None:
    Secret("in-the-environment")
    given = {
        "MY_PASSWORD": "in-the-environment",
        "URL": "db://me:in-the-environment@h",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "in-the-environment",
    }
    assert environment_without_secrets(given) == {"HOME": "/root", "AWS_SECRET_ACCESS_KEY": "in-the-environment"}


def test_a_short_password_does_not_take_the_places_of_things_from_a_child() -> None:
    Secret("toor")
    assert environment_without_secrets({"HOME": "/toor", "X": "/toor"}) == {"HOME": "/toor"}


def test_a_secret_too_short_to_hide_in_log_lines_is_not_inherited_either() -> None:
    Secret("q7")
    assert environment_without_secrets({"PW": "q7", "X": "q7q7", "HOME": "q7"}) == {"X": "q7q7", "HOME": "q7"}
