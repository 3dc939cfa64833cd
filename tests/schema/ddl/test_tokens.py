"""What is quoted is read back as it was, whatever is in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.schema.ddl.tokens import NAME, STRING, SYMBOL, tokens_of
from penstock.schema.quoting import quoted_name, quoted_string


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_name_cannot_leave_its_quotes(schema: str, table: str) -> None:
    found = [(token.kind, token.text) for token in tokens_of(quoted_name(schema, table))[:-1]]
    assert found == [(NAME, schema), (SYMBOL, "."), (NAME, table)]


@given(st.text().filter(lambda text: "\\" not in text))
def test_a_string_cannot_leave_its_quotes(text: str) -> None:
    assert [(token.kind, token.text) for token in tokens_of(quoted_string(text))[:-1]] == [(STRING, text)]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("a /* 99999 , b /* note */ , c */ d", ["a", "d"]),  # what MySQL logs for /*!99999 , b /* note */ , c */
        ("a /* 99999 x */ b /* y */ c", ["a", "b", "c"]),
        ("a /* 99999 x /* y */ b", ["a", "b"]),  # a comment of somebody's own
        ("a /* 1 /* 2 */ b", ["a", "b"]),
    ],
)
def test_a_comment_that_was_not_executed_may_hold_another(sql: str, words: list[str]) -> None:
    assert [token.text for token in tokens_of(sql)][:-1] == words
