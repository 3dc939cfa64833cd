"""The language itself: what its words mean at the edges, and that an error names the place."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock.rules.expressions.binding import Inputs, bind, bind_filter
from penstock.rules.expressions.parser import parse
from penstock.rules.expressions.syntax import BadExpression
from penstock.schema.model import Column


def moment(year: int, month: int, day: int, hour: int = 0, micros: int = 0) -> int:
    return ((year * 13 + month) << 22 | day << 17 | hour << 12) << 24 | micros


SECOND = 1_000_000
COLUMNS: dict[str, tuple[Column, pa.DataType, Any]] = {
    "n": (Column("n", "int"), pa.int32(), 7),
    "big": (Column("big", "bigint"), pa.int64(), (1 << 63) - 1),
    "u": (Column("u", "bigint unsigned"), pa.uint64(), (1 << 64) - 1),
    "d": (Column("d", "decimal(38,2)"), pa.decimal128(38, 2), Decimal("9" * 36 + ".99")),
    "small": (Column("small", "decimal(5,2)"), pa.decimal128(5, 2), Decimal("1.50")),
    "long": (Column("long", "decimal(65,0)"), pa.string(), "9" * 65),
    "s": (Column("s", "varchar(9)"), pa.string(), "Größe"),
    "none": (Column("none", "varchar(9)"), pa.string(), None),
    "b": (Column("b", "varbinary(9)"), pa.binary(), b"\x00\xff"),
    "e": (Column("e", "enum('a','b')", elements=("a", "b")), pa.uint16(), 9),
    "tags": (Column("tags", "set('x','y')", elements=("x", "y")), pa.uint64(), 3),
    "day": (Column("day", "date"), pa.int32(), 2026 << 9 | 11 << 5 | 17),
    "at": (Column("at", "datetime(3)"), pa.int64(), moment(2026, 11, 17, 8, 250_000)),
    "ts": (Column("ts", "timestamp"), pa.int64(), 1_795_000_000 * SECOND),
    "zero": (Column("zero", "timestamp"), pa.int64(), 0),
    "t": (Column("t", "time"), pa.int64(), -3 * SECOND),
    "shape": (Column("shape", "point"), pa.binary(), b"?"),
    "odd name": (Column("odd name", "int"), pa.int32(), 1),
}
TABLE = tuple(column for column, _, _ in COLUMNS.values())
INPUTS = Inputs([pa.array([value], kind) for _, kind, value in COLUMNS.values()], 1)


def value(text: str) -> Any:
    made = bind(parse(text), TABLE).run(INPUTS)
    assert len(made) == 1
    return made[0].as_py()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1 + 2 * 3 - 4", 3),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3.5),
        ("n / 0", None),
        ("big + 1", None),
        ("0 - big - 2", None),
        ("big * 2", None),
        ("-9223372036854775808 * -1", None),
        ("u = 18446744073709551615", True),
        ("u + 1", Decimal(1 << 64)),
        ("d + 1", None),  # 39 digits
        ("d < 1e40", True),
        ("-small", Decimal("-1.50")),
        ("small * small", Decimal("2.2500")),
        ("small + n", Decimal("8.50")),
        ("1e300 * 1e300", None),
        ("long is null", False),
        ("length(s)", 5),
        ("length(b)", 2),
        ("b = x'00FF'", True),
        ("upper(s)", "GRÖẞE"),
        ("substr(s, 3, 2)", "öß"),
        ("substr(s, 9)", ""),
        ("s || none", None),
        ("coalesce(none, s)", "Größe"),
        ("if(none = 'x', 1, 2)", 2),
        ("nullif(n, 7)", None),
        ("e is null", True),  # the table has no ninth element
        ("tags", "x,y"),
        ("day = '2026-11-17'", True),
        ("day < '2026-11-17'", False),
        ("at >= '2026-11-17 08:00:00.25'", True),
        ("'2026-11-18' > at", True),
        ("at between '2026-11-17' and '2026-11-18'", True),
        ("ts > '2026-11-18T00:00:00'", True),
        ("text(ts)", "2026-11-18 11:06:40"),
        ("date(at) = day", True),
        ("text(date(ts))", "2026-11-18"),
        ("date(zero)", None),
        ("t = '-00:00:03'", True),
        ("text(at)", "2026-11-17 08:00:00.250"),
        ("shape is not null", True),
        ("`odd name` + 1", 2),
        ("N", 7),
        ("'it''s'", "it's"),
        ("null and false", False),
        ("null or true", True),
        ("not (null and true)", None),
        ("n in (1, null)", None),
        ("n not in (7, null)", False),
        ("s like 'Gr%e'", True),
        ("s like 'gr%'", False),
        ("'50%' like '50\\%'", True),
        ("'a' like '%\\a'", True),
        ("'\\' like '\\'", True),
        ("'ab' like 'a'", False),
        ("'a.c' like 'a.c'", True),
        ("'abc' like 'a.c'", False),
        ("'a\nb' like 'a_b'", True),
        ("n = true", False),
        ("true", True),
    ],
)  # fmt: skip
def test_values(text: str, wanted: Any) -> None:
    found = value(text)
    assert found == wanted
    assert type(found) is type(wanted)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 1, "a value is missing"),
        ("n =", 4, "a value is missing"),
        ("n = 'x'", 3, "a whole number and a text do not go together"),
        ("n = 1 and s = \"x\"", 15, "single quotes"),
        ("s = 'x", 5, "has no end"),
        ("nope > 1", 1, "no column 'nope'"),
        ("n > 1 or nope(1) = 2", 10, "no function 'nope'"),
        ("n and true", 1, "a condition is wanted"),
        ("n + s", 5, "+ is for numbers"),
        ("substr(s, 0)", 11, "from 1 on"),
        ("substr(s)", 1, "takes 2 to 3 arguments"),
        ("at = 'soon'", 6, "'2026-11-17 08:30:00'"),
        ("day = '2026-02-30'", 7, "a date is wanted"),
        ("b || 'x'", 1, "cannot be made a text"),
        ("1 < 2 < 3", 7, "joined by AND"),
        ("(n", 3, "')' is wanted"),
        ("n)", 2, "should end here"),
        ("n ! 1", 3, "means nothing"),
        ("x'0'", 1, "hexadecimal"),
        ("s like n", 8, "a pattern in quotes"),
        ("n in (n)", 7, "only literals"),
        ("n is 5", 6, "NULL is wanted after IS"),
        ("n not 5", 3, "IN, LIKE or BETWEEN"),
        ("shape = shape", 7, "do not go together"),
        ("long = 1", 6, "do not go together"),
        ("select", 1, "no column 'select'"),
        ("n > and", 5, "a value is wanted"),
        ("(" * 200, 101, "nested too deeply"),
        ("1" * 39 + " > n", 1, "at most 38 digits"),
        ("d * d", 3, "too many digits"),
    ],
)  # fmt: skip
def test_an_error_names_the_place(text: str, place: int, words: str) -> None:
    with pytest.raises(BadExpression, match=f"character {place} of") as caught:
        bind(parse(text), TABLE)
    assert words in caught.value.message


def test_a_filter_is_a_condition() -> None:
    with pytest.raises(BadExpression, match="a condition is wanted here"):
        bind_filter(parse("n"), TABLE)
    assert bind_filter(parse("null"), TABLE).run(INPUTS).to_pylist() == [None]


def test_it_says_which_columns_it_reads() -> None:
    assert [TABLE[at].name for at in bind(parse("n > 1 or s = none"), TABLE).columns] == ["n", "s", "none"]
