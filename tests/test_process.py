"""How a child process reads its settings."""

from __future__ import annotations

import json
import os

import pytest
from pydantic import BaseModel, SecretStr

from penstock.errors import BadInput
from penstock.process import parse_settings, read_document


def document_from(*writes: bytes, end: bool = True) -> dict[str, object]:
    reader, writer = os.pipe()
    try:
        for data in writes:
            os.write(writer, data)
        if end:
            os.close(writer)
        return read_document(reader)
    finally:
        os.close(reader)
        if not end:
            os.close(writer)


def test_the_settings_are_read_while_the_input_stays_open() -> None:
    value = {"a": 1, "b": "zwölf"}
    assert document_from(json.dumps(value).encode() + b"\n", end=False) == value
    assert document_from(json.dumps(value, indent=2).encode() + b"\n", end=False) == value
    assert document_from(json.dumps(value).encode() + b"\nmore\n", end=False) == value


def test_the_last_line_needs_no_end_of_line() -> None:
    assert document_from(b'{"a":', b" 1}") == {"a": 1}


@pytest.mark.parametrize("text", [b"", b"[1]\n", b"nonsense\n", b'{"a": \n'])
def test_anything_else_is_refused(text: bytes) -> None:
    with pytest.raises(BadInput, match="not one JSON object"):
        document_from(text)


def test_a_wrong_setting_is_named_and_its_value_is_not() -> None:
    class Settings(BaseModel):
        password: SecretStr

    with pytest.raises(BadInput, match="capture's settings: password: ") as caught:
        parse_settings(Settings, {"password": ["hunter2"]}, "capture")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
