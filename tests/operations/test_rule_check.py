"""`penstock check` holds rules against the tables of the source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app


def checked(directory: Path, rules: str, *options: str) -> Result:
    path = directory / "penstock.yaml"
    path.write_text(f"source: {{type: demo}}\nsinks: {{lake: {{url: ./lake, format: parquet}}}}\nrules: [{rules}]\n")
    return CliRunner().invoke(app, ["check", "-c", str(path), *options])


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("{table: shop.customers, mask: {phone: redact}}", "shop.customers has no column phone"),
        ("{table: shop.orders, columns: [total]}", "has id in its primary key"),
        ("{table: shop.orders, filter: 'total > status'}", "do not go together"),
        ("{table: shop.orders, route: shop.products}", "shop.orders and shop.products would all be shop.products"),
        (
            "{table: 'shop.order*', route: lake.all}",
            "these tables cannot be one, lake.all: order_id is in the primary key",
        ),
    ],
)
def test_what_does_not_fit(tmp_path: Path, rule: str, words: str) -> None:
    done = checked(tmp_path, rule)
    assert done.exit_code == 2
    shown = " ".join(done.output.split())
    assert "✗" in shown and words in shown
    told = json.loads(checked(tmp_path, rule, "--json").stdout)
    assert told["ok"] is False and words in told["rules"][0]["message"]
    assert checked(tmp_path, rule, "--offline").exit_code == 0


def test_a_rule_for_a_table_that_may_come(tmp_path: Path) -> None:
    done = checked(tmp_path, "{table: shop.refunds, drop: [x]}")
    assert done.exit_code == 0
    assert "! no table of the source matches the rule of shop.refunds" in done.output


def test_rules_that_fit(tmp_path: Path) -> None:
    done = checked(tmp_path, "{table: shop.customers, mask: {email: sha256}}")
    assert done.exit_code == 0 and "✓ rules fit the 4 tables of the source" in done.output


def test_tables_that_are_one_at_the_sink(tmp_path: Path) -> None:
    done = checked(tmp_path, "{table: 'shop.*', columns: [id], route: lake.all}", "--json")
    assert "order_items" in done.output, "its key is another one"
    done = checked(tmp_path, "{table: 'shop.*ers', columns: [id], route: lake.all}")
    shown = " ".join(done.output.split())
    assert done.exit_code == 0, done.output
    assert "✓ shop.customers, shop.orders are one table at the sink lake: lake.all; no two of them" in shown


def test_sql_is_judged_by_spark_when_the_run_starts(tmp_path: Path) -> None:
    done = checked(tmp_path, "{table: shop.orders, sql: 'SELECT id, nobody_knows AS x FROM this'}")
    shown = " ".join(done.output.split())
    assert done.exit_code == 0 and "sql of shop.orders is checked by Spark when the run starts" in shown
    done = checked(tmp_path, "{table: shop.orders, sql: 'SELECT id FROM this ORDER BY id'}")
    assert done.exit_code == 2 and "rows stay in the order of the log" in " ".join(done.output.split())
    done = checked(tmp_path, "{table: shop.orders, mask: {nope: redact}, sql: 'SELECT * FROM this'}")
    assert done.exit_code == 2 and "has no column nope" in " ".join(done.output.split())
