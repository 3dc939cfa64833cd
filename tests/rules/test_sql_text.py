"""What is said of a `sql:` without Spark."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from penstock.rules.settings import Rule
from penstock.rules.sql.text import checked_select

FINE = [
    "SELECT * FROM this",
    "select id, upper(name) as name from THIS where status <> 'x'",
    "SELECT *, total * 1.2 AS gross FROM this AS t WHERE t.total > 0 AND name NOT LIKE '%;%'",
    "SELECT * EXCEPT (email), 'SELECT; FROM x JOIN y' AS text FROM `this` -- a join\n WHERE /* limit */ true",
    "SELECT id, extract(year FROM placed) AS y, trim(BOTH 'x' FROM name) AS n FROM this",
    'SELECT id, `order`, this.count AS now, "it\'s" AS q FROM this WHERE `limit` > 1',
    "SELECT id, timestamp '2026-11-18 08:30:00' AS t, date '2026-11-18' AS d, date FROM this",
    "SELECT id, date_add(d, 1) AS next, id IN (1, 2) AS few FROM this",
]

REFUSED = {
    "": "it is one SELECT",
    "INSERT INTO this VALUES (1)": "it is one SELECT",
    "WITH a AS (SELECT 1) SELECT * FROM this": "it is one SELECT",
    "SELECT id FROM this; SELECT 1": "without a semicolon",
    "SELECT id FROM orders": "SELECT … FROM this",
    "SELECT id FROM this.that": "SELECT … FROM this",
    "SELECT 1 AS x": "SELECT … FROM this",
    "SELECT DISTINCT id FROM this": "DISTINCT is not possible",
    "SELECT id FROM this JOIN that": "a join is not possible",
    "SELECT id FROM this, that": "a join is not possible",
    "SELECT id FROM this LEFT OUTER JOIN that ON true": "a join is not possible",
    "SELECT sum(total) AS s FROM this": "sum(…), an aggregate, is not possible",
    "SELECT id FROM this GROUP BY id": "an aggregate is not possible",
    "SELECT id FROM this WHERE id > 1 ORDER BY id": "rows stay in the order of the log",
    "SELECT id FROM this LIMIT 5": "choose rows by WHERE",
    "SELECT id FROM this WHERE true UNION ALL VALUES (1)": "a second relation is not possible",
    "SELECT row_number() OVER (ORDER BY id) AS n FROM this": "a window is not possible",
    "SELECT id, explode(split(a, ',')) AS x FROM this": "explode(…), a generator, is not possible",
    "SELECT id FROM this LATERAL VIEW explode(a) t AS x": "generator",
    "SELECT id FROM this WHERE id IN (SELECT 1)": "a subquery is not possible",
    "SELECT id FROM this TABLESAMPLE (5 ROWS)": "choose rows by WHERE",
    "SELECT /*+ BROADCAST(this) */ id FROM this": "hints",
    "SELECT id, rand() AS r FROM this": "rand may give another value",
    "SELECT id, uuid() AS r FROM this": "uuid may give another value",
    "SELECT id, now() AS r FROM this": "now may give another value",
    "SELECT id, current_timestamp AS r FROM this": "current_timestamp may give another value",
    "SELECT id, timestamp 'now' AS r FROM this": "timestamp 'now' may give another value",
    'SELECT id FROM this WHERE d < DATE/**/r"Today "': "may give another value",
    "SELECT id, timestamp_ltz'12:30' AS r FROM this": "may give another value",
    "SELECT id, date 'tod\\u0061y' AS r FROM this": "may give another value",
    "SELECT id, monotonically_increasing_id() AS r FROM this": "monotonically_increasing_id may give",
    "SELECT id, java_method('java.util.UUID', 'randomUUID') AS r FROM this": "java_method may give",
    "SELECT 'open AS x FROM this": "does not end",
}


@pytest.mark.parametrize("text", FINE)
def test_one_select_of_rows(text: str) -> None:
    assert checked_select(text) == text


@pytest.mark.parametrize(("text", "words"), REFUSED.items())
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^sql: ") as caught:
        checked_select(text)
    assert words in str(caught.value)


def test_it_is_for_one_table() -> None:
    with pytest.raises(ValidationError, match="it reads the columns of one table"):
        Rule.model_validate({"table": "shop.*", "sql": "SELECT * FROM this"})
    with pytest.raises(ValidationError, match="an aggregate"):
        Rule.model_validate({"table": "shop.orders", "sql": "SELECT max(id) AS m FROM this"})
