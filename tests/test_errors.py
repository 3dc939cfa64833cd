"""Errors on their way between processes."""

from __future__ import annotations

from penstock.errors import BadInput, PenstockError, Terminal, Unavailable, error_from_json, kind_named


class Special(Unavailable):
    """A subclass that the other process does not know."""


def test_an_error_arrives_as_its_kind() -> None:
    error = error_from_json(Special("nobody answers", hint="wait").to_json())
    assert type(error) is Unavailable
    assert (error.message, error.hint, error.transient) == ("nobody answers", "wait", True)
    assert BadInput("x").kind == "BadInput"


def test_a_kind_that_is_not_known_is_terminal() -> None:
    assert type(error_from_json({"kind": "Special", "message": "m"})) is Terminal
    assert kind_named("Mapping") is None
    assert kind_named("PenstockError") is PenstockError
