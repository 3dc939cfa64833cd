"""Damaged statements: whatever the text, the outcome is versions or parked tables, never an exception."""

from __future__ import annotations

import json
import random
from pathlib import Path

from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl, is_ddl
from penstock.schema.model import TableSchema
from tests.schema.ddl import migrations
from tests.schema.ddl.shop import ORDERS, table
from tests.support import budget

_PIECES = ["(", ")", ",", "`", "'", '"', ".", "=", "-", "/*", "*/", "/*!50100", "--", "#", "\\", "\0", "x'zz'", "0x", "b'2'",
           "1e5", ".5", "orders", "`orders`", "items", "PRIMARY", "KEY", "ENUM(", "SET", "DEFAULT", "AFTER", "TABLE", "PARTITION",
           "LIKE", "CONVERT", "TO", "CHARACTER", "IF", "EXISTS", "FIRST", "varchar(1e9)", "decimal(5.5)", "text(99999999999)", "é", ";"]  # fmt: skip


def _mutated(random_: random.Random, sql: str) -> str:
    words = sql.split(" ")
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(words)) if words else 0
        action = random_.randrange(5)
        if action == 0 and words:
            del words[at]
        elif action == 1:
            words.insert(at, random_.choice(_PIECES))
        elif action == 2 and words:
            words[at] = random_.choice(_PIECES)
        elif action == 3 and words:
            words = words[:at]
        elif words:
            other = random_.randrange(len(words))
            words[at], words[other] = words[other], words[at]
    return " ".join(words)


def test_damaged_statements() -> None:
    statements = [
        json.loads(line)["sql"]
        for path in sorted(Path(migrations.__file__).parent.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    seed = random.randrange(1 << 32)
    random_ = random.Random(seed)
    catalog = Catalog([ORDERS, table("items"), table("users"), table("photo"), table("customer")])
    for _ in range(budget.scaled(20_000)):
        sql = _mutated(random_, random_.choice(statements).replace("`users`", random_.choice(["`orders`", "`users`"])))
        mode = random_.choice([0, 0, 4, 1 << 20, 4 | 1 << 20, 512])
        try:
            is_ddl(sql)
            made = apply_ddl(Statement(sql, "shop", mode, mariadb=random_.random() < 0.7), catalog, 2)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {sql!r}") from error
        for version in made:
            assert TableSchema.from_json(version.to_json()) == version
            assert (
                bool(version.columns) or version.dropped or version.parked or version.is_sequence or not version.table
            )
            assert all(isinstance(column.arguments, tuple) for column in version.columns)
