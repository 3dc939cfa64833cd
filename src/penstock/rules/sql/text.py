"""What can be said of the text of a `sql:` without Spark: one SELECT of rows of `this`, and nothing that is no function of one row.

Light, so that reading a configuration starts no JVM. Spark's own parser and analyser judge the rest when a run starts
(`spark/sql/statement.py`), and are the ones that count: what slips through here is refused there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

RELATION = "this"
CHARACTERS_MAX = 20_000

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<hint>/\*\+)
      | (?P<comment>/\*.*?\*/)
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<number>\d\w*(?:\.\d*\w*)?|\.\d\w*)
      | (?P<word>[^\W\d]\w*)
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)

_ONE_ROW = "each row is shaped by itself"
_CLAUSES = {
    **dict.fromkeys(("join", "cross", "inner", "left", "right", "full", "natural", "anti", "semi"), ("a join", "join at the sink, or in a query of your own")),
    **dict.fromkeys(("group", "having"), ("an aggregate", "aggregate at the sink, or in a query of your own")),
    **dict.fromkeys(("order", "sort", "cluster", "distribute"), ("an order", "rows stay in the order of the log")),
    **dict.fromkeys(("limit", "offset", "tablesample"), ("a choice by number", "choose rows by WHERE")),
    **dict.fromkeys(("union", "intersect", "except", "minus"), ("a second relation", "give each table a rule of its own")),
    **dict.fromkeys(("lateral", "pivot", "unpivot"), ("a generator", "a change at the source is one row at the sink; to_json(…) keeps nested values")),
    "window": ("a window", "compute it at the sink, or in a query of your own"),
    "qualify": ("a window", "compute it at the sink, or in a query of your own"),
}  # fmt: skip
_AGGREGATES = frozenset(["any_value", "avg", "bool_and", "bool_or", "collect_list", "collect_set", "corr", "count", "count_if", "every", "first", "first_value", "last", "last_value", "listagg", "max", "max_by", "mean", "median", "min", "min_by", "mode", "percentile", "some", "std", "stddev", "string_agg", "sum", "variance", "approx_count_distinct"])  # fmt: skip
_GENERATORS = frozenset(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"]
)
_UNSTABLE = frozenset(["rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name", "input_file_block_start", "input_file_block_length", "now", "curdate", "version", "reflect", "java_method", "try_reflect"])  # fmt: skip
_UNSTABLE_WORDS = frozenset(["current_timestamp", "current_date", "current_time", "localtimestamp", "current_user", "session_user", "current_database", "current_schema", "current_catalog", "current_timezone"])  # fmt: skip

_DATE = re.compile(r"\s*(?:[+-]?\d{4,}.*|epoch(?:\s.*)?|)", re.IGNORECASE | re.DOTALL)


class _Token(NamedTuple):
    kind: str
    text: str


def checked_select(text: str) -> str:
    """The text. Raises `ValueError` with the reason, and what to do, where it is not one SELECT … FROM this [WHERE …]."""
    if len(text) > CHARACTERS_MAX:
        raise ValueError(f"sql: the statement has more than {CHARACTERS_MAX:,} characters")
    tokens = _tokens(text)
    if not tokens or not _is(tokens[0], "select"):
        raise ValueError("sql: it is one SELECT, for example SELECT *, total * 1.2 AS gross FROM this WHERE total > 0")
    if sum(_is(token, "select") for token in tokens) > 1:
        raise _refused("a subquery", "write one SELECT")
    if len(tokens) > 1 and _is(tokens[1], "distinct"):
        raise _refused("DISTINCT", "leave it out: a change at the source is one row at the sink")
    _check_functions(tokens)
    _check_clauses(tokens)
    return text


def names_in(text: str) -> frozenset[str]:
    """What may be the name of a column in a statement that was checked, in lower case: also of those that `* EXCEPT` leaves out.
    Not the names of functions, and those that it gives itself."""
    tokens = _tokens(text)
    found = set()
    for at, token in enumerate(tokens):
        called = at + 1 < len(tokens) and tokens[at + 1].text == "("
        given = at > 0 and _is(tokens[at - 1], "as")
        if token.kind in ("word", "quoted") and not called and not given:
            found.add(token.text if token.kind == "word" else token.text[1:-1].replace("``", "`").lower())
    return frozenset(found)


def _tokens(text: str) -> list[_Token]:
    found = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "hint":
            raise ValueError("sql: hints (/*+ … */) are for joins and partitions; leave them out")
        if kind == "symbol" and match[0] in "'\"`":
            raise ValueError(f"sql: a text that begins with {match[0]} does not end")
        if kind == "symbol" and match[0] == ";":
            raise ValueError("sql: it is one statement, without a semicolon")
        if kind not in ("space", "comment"):
            found.append(_Token(kind, match[0].lower() if kind == "word" else match[0]))
    return found


def _check_functions(tokens: list[_Token]) -> None:
    for at, token in enumerate(tokens):
        before = tokens[at - 1].text if at else ""
        if token.kind != "word" or before in (".", "as"):
            continue
        if token.text.startswith(("date", "timestamp")):
            _check_constant(tokens[at : at + 3])
        called = at + 1 < len(tokens) and tokens[at + 1].text == "("
        if token.text == "over" and called:
            raise _refused("a window", "compute it at the sink, or in a query of your own")
        if called and token.text in _AGGREGATES:
            raise _refused(f"{token.text}(…), an aggregate,", "aggregate at the sink, or in a query of your own")
        if called and token.text in _GENERATORS:
            raise _refused(f"{token.text}(…), a generator,", "to_json(…) keeps nested values in one column")
        if (called and token.text in _UNSTABLE) or token.text in _UNSTABLE_WORDS:
            raise unstable(token.text)


def _check_constant(tokens: list[_Token]) -> None:
    """A constant with its type in front (`date 'today'`) is a plain value to Spark as soon as it is read."""
    given = tokens[2:] if len(tokens) > 2 and _is(tokens[1], "r") else tokens[1:2]
    if not given or given[0].kind != "text":
        return
    text = given[0].text[1:-1]
    if "\\" in text or not is_certain_date(text):
        raise unstable(f"{tokens[0].text} {given[0].text}")


def is_certain_date(text: str) -> bool:
    """Whether a text means the same date on every day that it is read: it begins with a year. `now`, `today` and times without
    a date do not."""
    return _DATE.fullmatch(text) is not None


def _check_clauses(tokens: list[_Token]) -> None:
    depth, tail = 0, None
    for at, token in enumerate(tokens):
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0 and _is(token, "from"):
            tail = tokens[at + 1 :]
            break
    if not tail or tail[0].text.strip("`").lower() != RELATION or (len(tail) > 1 and tail[1].text == "."):
        raise ValueError(
            f"sql: its rows are those of the rule's table, by the name {RELATION}: SELECT … FROM {RELATION}"
        )
    for token in tail[1:]:
        depth += (token.text == "(") - (token.text == ")")
        if depth or token.kind not in ("word", "symbol"):
            continue
        if token.text == "where":
            depth = 0
        if token.text == ",":
            raise _refused("a join", "join at the sink, or in a query of your own")
        if token.kind == "word" and token.text in _CLAUSES:
            raise _refused(*_CLAUSES[token.text])


def _is(token: _Token, word: str) -> bool:
    return token.kind == "word" and token.text == word


def _refused(what: str, instead: str) -> ValueError:
    return ValueError(f"sql: {what} is not possible, because {_ONE_ROW}; {instead}")


def unstable(name: str) -> ValueError:
    return ValueError(
        f"sql: {name} may give another value when a row is read again, and a row at the sink must always be the same; "
        "use the row's own columns"
    )
