"""Conditions that users give (`penstock backfill --where`): what may stand between the parentheses of a chunk's query.

A chunk is `WHERE (after the last key) AND (condition) ORDER BY … LIMIT …`. A condition that left its parentheses, or hid
what comes after it in a comment, would make another query of it: chunks that never end, or leave rows out.
"""

from __future__ import annotations

from typing import Any

from pymysql.connections import Connection

from penstock.errors import BadInput, Unavailable
from penstock.schema.ddl.tokens import Unreadable, tokens_of
from penstock.schema.quoting import quoted_name
from penstock.sources.mysql.connection import rows
from penstock.sources.source import SourceError

_HINT = "it is what would stand after WHERE in a query of this one table, such as \"created >= '2024-01-01'\""


def check_condition(condition: str) -> None:
    """Raises `BadInput` for a text that is not one closed expression."""
    try:
        tokens = tokens_of(condition)
    except Unreadable as error:
        raise BadInput(f"--where cannot be read: {error.message}", hint=_HINT) from None
    depth = at = 0
    for token in tokens:
        between = condition[at : token.start]
        if between.strip() or token.text == ";":
            raise BadInput("--where is one condition, without comments and semicolons", hint=_HINT)
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
        if depth < 0:
            break
        at = token.end
    if depth:
        raise BadInput("--where has a parenthesis too many, or too few", hint=_HINT)
    if len(tokens) < 2:
        raise BadInput("--where is empty", hint=_HINT)


def readable_rows(connection: Connection[Any], schema: str, table: str, condition: str) -> int:
    """How many rows meet the condition, as the server guesses it without reading them. Raises `SourceError` where the user
    may not read the table, `BadInput` where the condition does not fit it."""
    query = f"EXPLAIN SELECT * FROM {quoted_name(schema, table)}"
    rows(connection, query)  # whether it may be read at all
    if not condition:
        return 0
    try:
        found = rows(connection, f"{query} WHERE ({condition})")
    except Unavailable:
        raise
    except SourceError as error:
        raise BadInput(f"--where does not fit {schema}.{table}: {error.message}", hint=_HINT) from error
    return guessed_rows(found)


def guessed_rows(plan: list[tuple[Any, ...]]) -> int:
    """Of the first step of a plan: the column `rows` is the ninth of MariaDB's ten, and the tenth of MySQL's twelve, before
    the share in percent that is left of them."""
    first = plan[0]
    if len(first) < 9:  # a server that explains in another form (explain_format)
        return 0
    count = first[9] if len(first) > 10 else first[8]
    share = first[10] if len(first) > 10 else 100
    return int(float(count or 0) * float(share if share is not None else 100) / 100)
