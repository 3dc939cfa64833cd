"""`sql:` by a real Spark: what it refuses, what it makes of rows, of images and of every kind of column, and a whole flow with
it. One JVM for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from penstock.encode.parquet.columns import parquet_type
from penstock.encode.parquet.encoder import Parquet
from penstock.errors import BadInput
from penstock.log.position import Seq
from penstock.rules.rules import Rules
from penstock.rules.settings import Rule
from penstock.rules.table_rules import RuleMismatch
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.spark.failure import PipelineFailure
from penstock.spark.jvm.engine import Engine
from penstock.spark.sql.before_batch import sql_directory
from penstock.spark.sql.local import LocalSql
from tests.docs.documents import ROOT, code_blocks
from tests.encode.reference import Change
from tests.encode.reference import batch_of as kinds_batch
from tests.encode.test_parquet_spark import EXAMPLES
from tests.rules.reference import Row
from tests.rules.rows import NAMES, TABLE, batch_of, rows_of
from tests.spark.rig import CHANGEFEED, MakeRig

pytestmark = pytest.mark.spark


@pytest.fixture
def local(engine: Engine, tmp_path: Path) -> Iterator[LocalSql]:
    with closing(LocalSql(tmp_path, engine.sql())) as made:
        yield made


def rules_with(sql: LocalSql, *given: dict[str, Any]) -> Rules:
    return Rules(
        [Rule.model_validate({"table": "shop.orders", **one}) for one in given], "a key of some length", sql=sql
    )


REFUSED = {
    # What the text alone does not show: Spark's analyser does.
    "SELECT id, kurtosis(n) AS x FROM this": "an aggregate is not possible",
    "SELECT id, unix_timestamp() AS x FROM this": "may give another value",
    "SELECT id, user() AS x FROM this": "may give another value",
    "SELECT id, cast('now' AS timestamp) AS x FROM this": "may give another value",
    "SELECT id, n FROM this WHERE to_date('yesterday') < '2030-01-01'": "may give another value",
    "SELECT id, s > cast('2026-11-18' AS date) AND 'today' < date '2030-01-01' AS x FROM this": "may give another value",
    "SELECT id, to_timestamp(s) AS x FROM this": "name the format, as in to_timestamp(",
    "SELECT id, hour(s) AS x FROM this": "name the format, as in to_timestamp(",
    "SELECT id, aes_encrypt(s, 'abcdefghijklmnop') AS x FROM this": "without an iv it draws one for each row",
    "SELECT id, nope AS x FROM this": "`nope` cannot be resolved",
    "SELECT id, nope(n) AS x FROM this": "nope",
    "SELECT id, n + AS x FROM this": "cannot be resolved",
    "SELECT id, n n n AS x FROM this": "PARSE_SYNTAX_ERROR",
    "SELECT id, upper(s) FROM this": "upper(s) has no name: write … AS name",
    "SELECT id, array(n) AS x FROM this": "x is array<int>, which no column of MySQL is; to_json(x)",
    "SELECT id, null AS x FROM this": "x is void",
    "SELECT id, cast(n AS decimal(38,31)) AS x FROM this": "at most 30 digits after the point",
    "SELECT id, s, S FROM this": "makes s twice",
    "SELECT id, n AS _op, n + 1 AS _seq FROM this": "_seq is a column of every Parquet file",
    "SELECT n FROM this": "id is in the primary key",
    "SELECT id + 1 AS id FROM this": "id is in the primary key",
    "SELECT n AS id, id AS n FROM this": "id is in the primary key",
    "SELECT * EXCEPT (nope) FROM this": "nope",
    "SELECT id, n FROM this WHERE s": "boolean",
}  # fmt: skip


@pytest.mark.parametrize(("statement", "words"), REFUSED.items())
def test_what_spark_refuses(local: LocalSql, statement: str, words: str) -> None:
    with pytest.raises(RuleMismatch) as caught:
        rules_with(local, {"sql": statement}).table(TABLE)
    assert words in caught.value.message and "shop.orders" in caught.value.message
    assert "\n" not in caught.value.message


def test_the_columns_of_the_result(local: LocalSql) -> None:
    made = rules_with(
        local,
        {
            "mask": {"s": "sha256"},
            "sql": "SELECT ID, s AS hashed, upper(s) AS s, n > 1 AS more, d * 2 AS twice, more OR false AS again, to_json(struct(*)) AS whole, e FROM this t",
        },
    ).table(TABLE)
    assert [(c.name, c.mysql_type, c.primary_key) for c in made.columns] == [
        ("ID", "bigint", True),
        ("hashed", "char(64)", False),
        ("s", "longtext", False),
        ("more", "tinyint(1)", False),
        ("twice", "decimal(8,2)", False),
        ("again", "tinyint(1)", False),
        ("whole", "longtext", False),
        ("e", "enum('new','paid','ßÄ')", False),
    ]  # fmt: skip
    assert rules_with(local, {"sql": "SELECT * FROM this"}).table(TABLE).columns == TABLE.columns


def image(number: int, **other: Any) -> dict[str, Any]:
    return {**dict.fromkeys(NAMES), "id": number, "n": number, "s": f"s{number}", "d": Decimal(number), **other}


IMAGES = [
    Row("I", None, image(1)),
    Row("I", None, image(9, e="paid", b=b"\x00")),
    Row("U", image(1), image(2)),
    Row("U", image(1), image(8, f=0.5)),
    Row("U", image(8, s=None), image(1)),
    Row("U", image(7), image(9, s="ü")),
    Row("D", image(1), None),
    Row("D", image(6, flag=1), None),
    Row("I", None, image(5, n=None)),
]


@pytest.mark.parametrize(
    ("sql", "plain"),
    [
        ("SELECT * FROM this WHERE n > 5", {"filter": "n > 5"}),
        ("SELECT *, n + 1 AS x FROM this", {"compute": {"x": "n + 1"}}),
        ("SELECT *, concat(s, '!') AS x FROM this WHERE s <> 's1'", {"filter": "s <> 's1'", "compute": {"x": "concat(s, '!')"}}),
        ("SELECT *, d * 2 AS x FROM this WHERE d BETWEEN 2 AND 8 AND n > 0", {"filter": "d between 2 and 8 and n > 0", "compute": {"x": "d * 2"}}),
        ("SELECT * FROM this WHERE false", {"filter": "1 = 2"}),
        ("SELECT id, s, n FROM this", {"columns": ["id", "s", "n"]}),
    ],
)  # fmt: skip
def test_sql_is_what_filter_and_compute_are(local: LocalSql, sql: str, plain: dict[str, Any]) -> None:
    batch = batch_of(IMAGES)
    one, stop = rules_with(local, {"sql": sql}).rows(batch)
    other, _ = rules_with(local, plain).rows(batch)
    assert stop is None
    assert rows_of(one) == rows_of(other)
    assert one.seq.tobytes() == other.seq.tobytes() and one.commit_ts.tolist() == other.commit_ts.tolist()


def test_sql_never_sees_what_a_mask_hides_and_a_later_mask_hides_what_it_makes(local: LocalSql) -> None:
    rules = rules_with(
        local,
        {"mask": {"s": "redact"}},
        {"compute": {"m": "n * 2"}, "sql": "SELECT id, concat(s, '-', m) AS s, b FROM this"},
        {"filter": "s <> '***-2'", "mask": {"b": "redact"}},
    )
    seen, _ = rules.rows(batch_of(IMAGES[:2]))
    assert [row.after for row in rows_of(seen)] == [{"id": 9, "s": "***-18", "b": "***"}]


def test_a_value_that_cannot_be_made_stops_the_table_in_front_of_its_row(local: LocalSql) -> None:
    rules = rules_with(local, {"sql": "SELECT id, 10 DIV (n - 8) AS x FROM this"})
    seen, stop = rules.rows(batch_of(IMAGES))
    assert [row.after["x"] for row in rows_of(seen) if row.after] == [-1, 10, -1]
    assert stop is not None and stop.seq == batch_of(IMAGES).seq[3].tobytes()
    assert stop.table.reason.startswith(STOPPED_BY_RULES) and "DIVIDE_BY_ZERO" in stop.table.reason
    assert "\n" not in stop.table.reason


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("1 DIV 0", "DIVIDE_BY_ZERO"),
        ("date_format(to_timestamp(s, 'yyyy'), 'Y')", "DATETIME_PATTERN_RECOGNITION"),
        ("s RLIKE '['", "PatternSyntaxException: Unclosed character class"),
        ("format_string('%d', if(n = 8, s, null))", "IllegalFormatConversionException"),
    ],
)
def test_whatever_spark_throws_stops_the_table_and_no_other(local: LocalSql, expression: str, words: str) -> None:
    """In the statement or in a row; in Spark's words or in Java's."""
    rows = [Row("I", None, {**image(number), "s": "2026"}) for number in (7, 8)]
    seen, stop = rules_with(local, {"sql": f"SELECT id, {expression} AS x FROM this"}).rows(batch_of(rows))
    assert stop is not None and words in stop.table.reason and "\n" not in stop.table.reason
    assert len(seen) == (1 if "8" in expression else 0)


def test_texts_that_mean_one_date_are_let_through(local: LocalSql) -> None:
    sql = (
        "SELECT id, to_timestamp('2026-11-18 08:30:00') AS a, to_date(s) AS b, to_timestamp(s, 'yyyy-MM-dd') AS c, cast(null AS date) AS d, "
        "aes_encrypt(s, 'abcdefghijklmnop', 'ECB') = aes_encrypt(s, 'abcdefghijklmnop', 'ECB') AS e FROM this WHERE to_date(s) > '2026-01-01'"
    )
    seen, stop = rules_with(local, {"sql": sql}).rows(batch_of([Row("I", None, {**image(1), "s": "2026-11-18"})]))
    assert stop is None
    (row,) = rows_of(seen)
    assert row.after is not None and (row.after["c"], row.after["d"], row.after["e"]) == (1794960000000000, None, 1)


def test_a_row_without_what_is_read(local: LocalSql) -> None:
    """Absent is not NULL: what is made of it is absent too, and a WHERE cannot tell."""
    lacking = {key: value for key, value in image(3).items() if key != "s"}
    rows = [Row("I", None, image(1)), Row("D", lacking, None)]
    seen, stop = rules_with(local, {"sql": "SELECT id, upper(s) AS x, n FROM this"}).rows(batch_of(rows))
    assert stop is None and rows_of(seen)[1].before == {"id": 3, "n": 3}
    seen, stop = rules_with(local, {"sql": "SELECT id FROM this WHERE s IS NOT NULL"}).rows(batch_of(rows))
    assert len(seen) == 1 and stop is not None and "a row without column s" in stop.table.reason


def test_every_kind_of_column_through_spark(local: LocalSql) -> None:
    """The values that Spark sees are those of docs/types.md, and come back the same."""
    changes = [
        Change("I", None, {name: example[which] for name, example in EXAMPLES.items()}, Seq(1, which, 0, 0), 1)
        for which in (0, 1)
    ]
    batch = kinds_batch(list(EXAMPLES), changes)
    key = batch.table.columns[0].name
    made = [f"coalesce(`{c.name}`, null) AS `{c.name}`" for c in batch.table.columns[1:]]
    rule = {"table": batch.table.name, "sql": f"SELECT `{key}`, {', '.join(made)} FROM this"}
    seen, stop = Rules([Rule.model_validate(rule)], sql=local).rows(batch)
    assert stop is None
    through, plain = Parquet().rows_of(seen), Parquet().rows_of(batch)
    for name in plain.column_names:
        assert through.column(name).to_pylist() == plain.column(name).to_pylist(), name
    types = {c.name: parquet_type(c) for c in seen.table.columns}
    assert all(types[c.name] == parquet_type(c) for c in batch.table.columns)


def example() -> dict[str, Any]:
    """The rule in docs/rules.md."""
    (block,) = [block for block in code_blocks(ROOT / "docs" / "rules.md", "yaml") if "sql:" in block]
    (rule,) = yaml.safe_load(block)["rules"]
    return {**rule}


AS_THE_EXAMPLE = {
    "table": "shop.orders",
    "filter": "status <> 'cancelled'",
    "compute": {"u": "upper(status)", "gross": "total * 1.2", "month": "substr(text(date(placed_at)), 1, 7)"},
    "columns": ["id", "customer_id"],
}


def test_a_flow_whose_worker_is_killed(engine: Engine, make_rig: MakeRig) -> None:
    """The example of the page makes the same rows as filter and compute, in order and once, whatever was repeated; a table whose statement does not fit
    stops alone; and nothing is left of the scratch."""
    rig = make_rig(fmt="parquet")
    (rig.state_dir / "fail-kill").touch()
    rules = [
        example(),
        {"table": "shop.products", "sql": "SELECT id, nope AS x FROM this"},
    ]
    rig.start(engine, range_bytes_min=1 << 15, rules=rules)
    plain = Rules([Rule.model_validate(AS_THE_EXAMPLE)])
    names = ["_seq", "_op", "id", "customer_id", "status", "gross", "month"]
    wanted = []
    for batch in rig.batches("orders"):
        rows = Parquet().rows_of(plain.rows(batch)[0])
        wanted += rows.select([{"status": "u"}.get(name, name) for name in names]).rename_columns(names).to_pylist()
    others = {name: rows for name, rows in rig.expected().items() if name not in ("shop.orders", "shop.products")}
    count = len(wanted) + sum(map(len, others.values()))
    rig.wait_until("all but one table", lambda: sum(map(len, rig.delivered().values())) >= count)
    assert (rig.state_dir / "fail-kill.done").exists()
    found = []
    for path in sorted((rig.sink / "shop" / "orders").rglob("CDC*.parquet")):
        found += pq.ParquetFile(path).read().select(names).to_pylist()
    assert len(wanted) > 100 and found == wanted
    assert {name: rows for name, rows in rig.delivered().items() if name != "shop.orders"} == others
    rig.stop.set()
    rig.close()
    left = sql_directory(str(rig.state_dir), CHANGEFEED)
    assert not left.exists() or not any(left.iterdir())


def test_a_statement_that_no_table_could_have_is_refused_before_a_row_moves(engine: Engine, make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.start(engine, rules=[{"table": "shop.orders", "sql": "SELECT id, upper(status) FROM this"}])
    rig.wait_until("the refusal", lambda: rig.failure is not None, check=False)
    assert isinstance(rig.failure, PipelineFailure) and isinstance(rig.failure.error, BadInput)
    assert rig.failure.where == "config" and "upper(status) has no name" in rig.failure.error.message
    assert not rig.delivered()
