"""What is quoted is read back as it was, whatever is in it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.schema.tokens import NAME, STRING, SYMBOL, quoted_name, quoted_string, tokens_of


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_name_cannot_leave_its_quotes(schema: str, table: str) -> None:
    found = [(token.kind, token.text) for token in tokens_of(quoted_name(schema, table))[:-1]]
    assert found == [(NAME, schema), (SYMBOL, "."), (NAME, table)]


@given(st.text().filter(lambda text: "\\" not in text))
def test_a_string_cannot_leave_its_quotes(text: str) -> None:
    assert [(token.kind, token.text) for token in tokens_of(quoted_string(text))[:-1]] == [(STRING, text)]
