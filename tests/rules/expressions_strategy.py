"""Random expressions over the columns of `rows.TABLE`, by the kind of their values."""

from __future__ import annotations

from hypothesis import strategies as st

Text = st.SearchStrategy[str]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_INTEGER: Text = (
    st.sampled_from(["id", "n", "flag"]) | st.integers(-20, 20).map(str) | st.sampled_from(["9223372036854775807"])
)
_DECIMAL: Text = st.just("d") | st.integers(-999, 999).map(lambda n: f"{n / 10:.1f}")
_DOUBLE: Text = st.just("f") | st.sampled_from(["1e0", "2.5e-1", "-1e300"])
_TEXT: Text = st.sampled_from(["s", "e"]) | st.sampled_from(["", "a", "paid", "it's", "ä"]).map(_quoted)
_BYTES: Text = st.just("b") | st.sampled_from(["x''", "x'61'"])
_PATTERN: Text = st.text("a%_\\ ä", max_size=4).map(lambda text: _quoted(text.rstrip("\\")))


def _numbers(depth: int) -> Text:
    leaf = _INTEGER | _DECIMAL | _DOUBLE
    if depth == 0:
        return leaf
    inner = _numbers(depth - 1)
    return (
        leaf
        | st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})")
        | inner.map(lambda a: f"(-{a})")
        | inner.map(lambda a: f"abs({a})")
        | texts(depth - 1).map(lambda a: f"length({a})")
        | st.tuples(_DOUBLE, _DOUBLE).map(lambda p: f"nullif({p[0]}, {p[1]})")
        | st.tuples(conditions(depth - 1), _INTEGER, _INTEGER).map(lambda p: f"if({p[0]}, {p[1]}, {p[2]})")
    )


def texts(depth: int) -> Text:
    if depth == 0:
        return _TEXT
    inner = texts(depth - 1)
    return (
        _TEXT
        | st.tuples(inner, inner).map(lambda p: f"({p[0]} || {p[1]})")
        | st.tuples(inner, _INTEGER, _DECIMAL).map(lambda p: f"concat({p[0]}, {p[1]}, {p[2]})")
        | st.tuples(st.sampled_from(["lower", "upper", "trim", "text"]), inner).map(lambda p: f"{p[0]}({p[1]})")
        | st.tuples(inner, st.integers(1, 3), st.integers(0, 3)).map(lambda p: f"substr({p[0]}, {p[1]}, {p[2]})")
        | st.tuples(inner, inner).map(lambda p: f"coalesce({p[0]}, {p[1]})")
        | st.tuples(inner, inner).map(lambda p: f"nullif({p[0]}, {p[1]})")
        | st.tuples(conditions(depth - 1), inner).map(lambda p: f"if({p[0]}, {p[1]}, null)")
    )


def conditions(depth: int) -> Text:
    compared = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])
    below = max(0, depth - 1)
    pairs = st.one_of(*(st.tuples(kind, compared, kind) for kind in (_numbers(below), texts(below), _BYTES)))
    leaf = (
        pairs.map(lambda p: f"{p[0]} {p[1]} {p[2]}")
        | st.tuples(st.sampled_from(["n", "d", "f", "s", "e", "b"]), st.sampled_from(["", "not "])).map(
            lambda p: f"{p[0]} is {p[1]}null"
        )
        | st.tuples(texts(below), st.sampled_from(["", "not "]), _PATTERN).map(lambda p: f"{p[0]} {p[1]}like {p[2]}")
        | st.tuples(st.sampled_from(["n", "d", "f"]), st.sampled_from(["", "not "])).map(
            lambda p: f"{p[0]} {p[1]}in (1, -2.50, null, 0.125)"
        )
        | st.tuples(st.sampled_from(["n", "d"]), _INTEGER, _INTEGER).map(lambda p: f"{p[0]} between {p[1]} and {p[2]}")
        | st.sampled_from(["true", "false", "flag = true", "null", "s in ('a', 'paid')", "e not in ('new', null)"])
    )
    if depth == 0:
        return leaf
    inner = conditions(depth - 1)
    return (
        leaf
        | st.tuples(inner, st.sampled_from(["and", "or", "AND", "Or"]), inner).map(
            lambda p: f"({p[0]}) {p[1]} ({p[2]})"
        )
        | inner.map(lambda a: f"not ({a})")
    )


numbers = _numbers
