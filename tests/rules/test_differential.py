"""The vectorised rules against plain Python, on generated rows, expressions and rules."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.rules.rules import Rules
from penstock.rules.settings import Rule
from penstock.schema.changes import ChangeBatch, SchemaChange
from tests.rules.expressions_strategy import conditions, numbers, texts
from tests.rules.reference import Image, Row, Untold, applied
from tests.rules.rows import batch_of, rows, rows_of
from tests.support.budget import scaled

KEY = "a key of some length"
MASKS = ("hmac-sha256", "sha256", "redact", "null")


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    """One or two rules that fit the table: later ones may read a column that an earlier one masked or dropped, which is
    refused; such lists are passed over."""
    made = []
    for _ in range(draw(st.integers(1, 2))):
        value: dict[str, Any] = {"table": draw(st.sampled_from(["shop.orders", "shop.*", "*.ord*"]))}
        if draw(st.booleans()):
            value["filter"] = draw(conditions(2))
        value["mask"] = draw(st.dictionaries(st.sampled_from(["n", "d", "f", "s", "e", "b"]), st.sampled_from(MASKS), max_size=2))  # fmt: skip
        if draw(st.booleans()):
            value["mask"]["id"] = "hmac-sha256"
        value["compute"] = draw(
            st.dictionaries(st.sampled_from(["x", "y", "z"]), numbers(2) | texts(2) | conditions(2), max_size=2)
        )
        if draw(st.booleans()):
            value["drop"] = draw(st.lists(st.sampled_from(["n", "d", "s", "b"]), unique=True, max_size=2))
        elif draw(st.booleans()):
            value["columns"] = ["id", *draw(st.lists(st.sampled_from(["n", "s", "e"]), unique=True, max_size=3))]
        try:
            made.append(Rule.model_validate(value))
        except ValueError:
            assume(False)
    return made


def seen_by_sink(rules: list[Rule], changes: list[Row]) -> tuple[list[Row], SchemaChange | None]:
    found = list(Rules(rules, KEY).apply(batch_of(changes)))
    stop = found.pop() if found and isinstance(found[-1], SchemaChange) else None
    assert all(isinstance(one, ChangeBatch) and len(one) for one in found) and len(found) <= 1
    assert stop is None or isinstance(stop, SchemaChange)
    return [row for one in found if isinstance(one, ChangeBatch) for row in rows_of(one)], stop


def expected(rules: list[Rule], changes: list[Row]) -> tuple[list[Row], int | None]:
    """The rows, and the number of the first one that cannot be told."""
    made = []
    for number, row in enumerate(changes):
        try:
            one = applied(rules, "shop.orders", row, KEY.encode())
        except Untold:
            return made, number
        if one is not None:
            made.append(one)
    return made, None


def plain(row: Row) -> tuple[str, Any, Any]:
    return row.op, _plain(row.before), _plain(row.after)


def _plain(image: Image | None) -> Any:
    """Comparable: a negative zero differs from zero, and floats may differ in their last bits."""
    if image is None:
        return None
    return {name: f"{value:.12e}" if isinstance(value, float) else repr(value) for name, value in image.items()}


@settings(max_examples=scaled(60))
@given(rule_lists(), st.lists(rows(), min_size=1, max_size=8))
def test_whole_images(rules: list[Rule], changes: list[Row]) -> None:
    seen, stop = seen_by_sink(rules, changes)
    if stop is not None:
        assume(False)  # the rules do not fit the table; test_table_rules.py looks at those
    assert [plain(row) for row in seen] == [plain(row) for row in expected(rules, changes)[0]]


@settings(max_examples=scaled(60))
@given(rule_lists(), st.lists(rows(absent=True), min_size=1, max_size=6))
def test_images_without_some_columns(rules: list[Rule], changes: list[Row]) -> None:
    seen, stop = seen_by_sink(rules, changes)
    assume(stop is None or "logged a row without column" in stop.table.reason)
    rows_expected, stopped = expected(rules, changes)
    assert [plain(row) for row in seen] == [plain(row) for row in rows_expected]
    assert (stop is None) == (stopped is None)
    if stop is not None and stopped is not None:
        assert stop.seq == batch_of(changes).seq[stopped].tobytes()


def test_the_reference_knows_what_it_should() -> None:
    """So that both cannot be wrong together: the cases that people get wrong."""
    row = Row("U", {"id": 1, "n": 1, "s": "in"}, {"id": 1, "n": None, "s": "in"})
    (leaves,) = [Rule(table="shop.*", filter="n = 1")]
    assert applied([leaves], "shop.orders", row, b"") == Row("D", row.before, None)
    assert applied([Rule(table="*.*", filter="not n = 1")], "shop.orders", row, b"") is None
    with pytest.raises(Untold):
        applied([Rule(table="*.*", filter="d > 0")], "shop.orders", row, b"")
    assert math.isclose(float(applied([Rule(table="*.*", compute={"x": "n / 2"})], "a.b", row, b"").before["x"]), 0.5)  # type: ignore[union-attr, index]
