"""A statement that changes rows is shown without what is in them."""

from __future__ import annotations

import pytest

from penstock.schema.ddl.tokens import SqlMode
from penstock.schema.ddl.values_hidden import without_values


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("UPDATE t SET email = 'jane@example.com' WHERE id = 17", "UPDATE t SET email = ? WHERE id = ?"),
        ("insert into t values (-1.5e3, x'4a', 0x4A, b'01', _utf8mb4'ä''b', N'c\\'d')",
         "insert into t values (-?, x?, ?, b?, _utf8mb4?, N?)"),
        ('UPDATE `a``b` /* was jane */ SET a = "jane" -- jane\n', "UPDATE `a``b` SET a = ?"),
        ("DELETE FROM shop.2020t WHERE a = .5", "DELETE FROM shop.2020t WHERE a = ?"),
        ("UPDATE t SET a = 'jane", "UPDATE …"),
        ("", ""),
    ],
)  # fmt: skip
def test_values_are_left_out(sql: str, shown: str) -> None:
    assert without_values(sql) == shown


def test_what_a_quote_means_is_for_the_session_to_say() -> None:
    assert without_values('UPDATE "t" SET a = 1', SqlMode.ANSI_QUOTES) == 'UPDATE "t" SET a = ?'
    sql = "UPDATE t SET a = 'b\\', c = 'jane'"
    assert without_values(sql, SqlMode.NO_BACKSLASH_ESCAPES) == "UPDATE t SET a = ?, c = ?"


def test_a_long_statement_is_cut() -> None:
    shown = without_values("INSERT INTO t VALUES " + ", ".join(f"('jane{n}')" for n in range(10_000)))
    assert len(shown) < 300 and shown.endswith(" …") and "jane" not in shown
