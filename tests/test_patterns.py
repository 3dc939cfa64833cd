"""Patterns of tables: `*` and `?`, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.patterns import matches
from penstock.sources.settings import Tables

NAMES = st.text(st.sampled_from("ab.[]!-*?\\\n"), max_size=8)


@given(NAMES)
def test_a_name_without_wildcards_matches_itself_and_nothing_else(name: str) -> None:
    plain = name.replace("*", "").replace("?", "")
    assert matches(plain, plain)
    assert not matches(plain + "a", plain)


@given(NAMES, NAMES)
def test_a_star_stands_for_anything(before: str, inside: str) -> None:
    start = before.replace("*", "").replace("?", "")
    assert matches(f"{start}{inside}.end", f"{start}*.end")


@pytest.mark.parametrize(
    ("name", "pattern", "taken"),
    [
        ("hr.staff[2024]", "hr.staff[2024]", True),
        ("hr.staff2", "hr.staff[2024]", False),
        ("shop.[/x]", "shop.[/x]", True),
        ("shop.orders", "shop.order?", True),
        ("shop.orders", "SHOP.*", False),
    ],
)
def test_a_bracket_stands_for_itself(name: str, pattern: str, taken: bool) -> None:
    assert matches(name, pattern) is taken
    schema, _, table = name.partition(".")
    assert Tables(include=(pattern,)).matches(schema, table) is taken
    assert Tables(exclude=(pattern,)).matches(schema, table) is not taken


def test_a_database_with_a_dot_in_its_name_may_be_wanted() -> None:
    tables = Tables(include=("my.shop.orders",))
    assert tables.matches("my.shop", "orders") and tables.matches_database("my.shop")
    assert tables.matches_database("my") and not tables.matches_database("shop")
