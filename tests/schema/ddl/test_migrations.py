"""Statements that migration tools emit, statement by statement: the tables are what the server made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl
from penstock.schema.model import DdlType, TableSchema
from tests.schema.ddl import migrations
from tests.schema.ddl.server import facts

FILES = sorted(Path(migrations.__file__).parent.glob("*.jsonl"))


def _tables(catalog: Catalog) -> dict[str, list[Any]]:
    return {table.table: facts(table) for table in catalog.tables() if table.schema == "app"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_tool(path: Path) -> None:
    mariadb = path.stem != "mysql-8"
    catalog = Catalog([TableSchema("app", "", 0, (), ddl_type=DdlType.CREATE_SCHEMA, charset="utf8mb4")])
    for number, line in enumerate(path.read_text().splitlines(), 1):
        recorded = json.loads(line)
        before = _tables(catalog)
        for made in apply_ddl(Statement(recorded["sql"], "app", mariadb=mariadb), catalog, number):
            assert not made.parked, f"{path.name}:{number}: {made.reason}\n{recorded['sql']}"
            catalog.take(made)
        after = _tables(catalog)
        changed = {name: after.get(name) for name in {*before, *after} if before.get(name) != after.get(name)}
        assert changed == recorded["tables"], f"{path.name}:{number}: {recorded['sql']}"


def test_there_are_many() -> None:
    assert sum(len(path.read_text().splitlines()) for path in FILES) >= 500
