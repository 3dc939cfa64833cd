"""docs/rules.md: its configurations load and fit the demo shop, its expressions have the values that it says."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.operations.config.loading import load
from penstock.operations.rule_check import look_at_rules
from penstock.rules.expressions.binding import Inputs, bind
from penstock.rules.expressions.functions import FUNCTIONS
from penstock.rules.expressions.parser import parse
from penstock.rules.settings import Rule
from penstock.schema.model import Column
from tests.docs.documents import ROOT, code_blocks

PAGE = ROOT / "docs" / "rules.md"
COLUMNS = (
    Column("id", "bigint"),
    Column("status", "varchar(9)"),
    Column("total", "decimal(12,2)"),
    Column("note", "varchar(9)"),
    Column("placed_at", "datetime"),
)
ROW = Inputs(
    [
        pa.array([8812], pa.int64()),
        pa.array(["paid"]),
        pa.array([Decimal("41.90")], pa.decimal128(12, 2)),
        pa.array([None], pa.string()),
        pa.array([((2026 * 13 + 11) << 22 | 17 << 17 | 8 << 12 | 30 << 6) << 24], pa.int64()),
    ],
    1,
)


def expressions() -> list[tuple[str, str]]:
    section = PAGE.read_text().split("| expression | value |")[1].split("\n\n")[0]
    return [
        (text.replace("\\|", "|"), value)
        for text, value in re.findall(r"^\| `(.*)` \| (.*) \|$", section, re.MULTILINE)
    ]


@pytest.mark.parametrize(("text", "wanted"), expressions())
def test_an_expression_of_the_page(text: str, wanted: str) -> None:
    (value,) = bind(parse(text), COLUMNS).run(ROW).to_pylist()
    shown = {None: "null", True: "true", False: "false"}.get(value) if not isinstance(value, int | float) or isinstance(value, bool) else None  # fmt: skip
    assert (shown or (f"'{value}'" if isinstance(value, str) else str(value))) == wanted


def test_there_are_many_of_them() -> None:
    assert len(expressions()) > 20


@pytest.mark.parametrize("block", code_blocks(PAGE, "yaml"))
def test_a_configuration_of_the_page(block: str, tmp_path: Path) -> None:
    path = tmp_path / "penstock.yaml"
    sinks = "" if "sinks:" in block else "sinks: {lake: {url: ./lake, format: parquet}}\n"
    path.write_text(f"source: {{type: demo}}\n{sinks}{block}")
    config = load(path, {"PENSTOCK_MASK_KEY": "0123456789abcdef0123"})
    (check,) = look_at_rules(config)
    assert check.passed or check.message == "no table of the source matches the rule of billing.invoice_*", check


def test_the_page_names_every_key_and_function() -> None:
    text = PAGE.read_text()
    assert [name for name in Rule.model_fields if f"| `{name}` |" not in text] == []
    named = text.split("Functions: ")[1].split(".\n")[0]
    assert sorted(re.findall(r"`(\w+)`", named)) == sorted(FUNCTIONS)
