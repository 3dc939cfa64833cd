"""What our encoders write, laid out as a sink, is rebuilt by the consumer into the tables that the changes make."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.commit_ts import commit_ts_of
from penstock.delivery.storage.layout import date_of, layout_of
from penstock.encode import open_format
from penstock.encode.settings import CsvOptions
from penstock.log.position import Seq
from penstock.schema.changes import ChangeBatch
from penstock.schema.model import DdlType
from penstock.schema.schema_file import schema_file
from tests.consumer.consumer import ConsumerSettings, read_sink, settings_for
from tests.consumer.csv import CsvSettings
from tests.encode.reference import Change, batch_of, canal_value, lake_value
from tests.encode.test_csv import plain_value
from tests.support.budget import scaled

NAMES = ["int", "varchar", "enum", "set", "blob", "money", "datetime3", "bit63", "json", "year"]
START = commit_ts_of(1_700_000_000_000)
TEXTS = ["", "a,b", 'say "x"', "line\r\nend", "\\N", "ß😀", "tab\t|", None]
Image = dict[str, Any]


def image_of(key: int, random_: random.Random) -> Image:
    return {
        "int": key,
        "varchar": random_.choice(TEXTS),
        "enum": random_.choice([None, 0, 1, 3]),
        "set": random_.choice([None, 0, 5, 31]),
        "blob": random_.choice([None, b"", bytes(range(256))]),
        "money": random_.choice([None, 0, -1, 10**12 - 1]),
        "datetime3": random_.choice([None, (2024, 2, 29, 1, 2, 3, 456_000)]),
        "bit63": random_.choice([None, 0, 2**63 - 1]),
        "json": random_.choice([None, '{"a": "ü"}']),
        "year": random_.choice([None, 1901, 2155]),
    }


def changes_of(seed: int, count: int) -> tuple[list[Change], dict[int, Image]]:
    """Changes, among them updates of the key, and the rows that they leave."""
    random_ = random.Random(seed)
    rows: dict[int, Image] = {}
    changes: list[Change] = []
    for n in range(count):
        seq, ts = Seq(1, n, 0, 0), START + 1 + n // 3
        kind = random_.choice("IUKD") if rows else "I"
        if kind == "I":
            image = image_of(1000 + n, random_)
            rows[1000 + n] = image
            changes.append(Change("I", None, image, seq, ts))
            continue
        key = random_.choice(list(rows))
        before = rows.pop(key)
        if kind == "D":
            changes.append(Change("D", before, None, seq, ts))
            continue
        after = image_of(key if kind == "U" else -n - 1, random_)
        rows[after["int"]] = after
        changes.append(Change("U", before, after, seq, ts))
    return changes, rows


def put_sink(root: Path, batch: ChangeBatch, format_name: str, options: dict[str, Any]) -> None:
    """Two files, as delivery lays them out."""
    layout, made = layout_of(format_name), open_format(format_name, options)
    table = batch.table
    schemas = root / layout.schema_directory(table.schema, table.table)
    schemas.mkdir(parents=True)
    name, content = schema_file(table)
    (schemas / name).write_bytes(content)
    directory = layout.data_directory(table.schema, table.table, table.version, date_of(START))
    (root / layout.index_path(directory)).parent.mkdir(parents=True)
    half = len(batch) // 2
    for number, (first, last) in enumerate(((0, half), (half, len(batch))), 1):
        parts = [made.encode(batch.slice(at, min(at + 7, last))) for at in range(first, last, 7)]
        (root / layout.data_path(directory, number)).write_bytes(made.assemble(parts))
    (root / layout.index_path(directory)).write_text(layout.data_path(directory, 2).rpartition("/")[2] + "\n")
    (root / "metadata").write_text(f'{{"checkpoint-ts":{START + 10_000}}}')


def csv_settings(options: dict[str, Any]) -> ConsumerSettings:
    known = {key: value for key, value in options.items() if key in CsvSettings.__dataclass_fields__}
    end = {"lf": "\n", "crlf": "\r\n"}[options.get("terminator", "crlf")]
    return settings_for("csv", complete=True, csv=CsvSettings(**{**known, "terminator": end}))


def _csv_text(name: str, value: Any, options: dict[str, Any]) -> str | None:
    return None if value is None else plain_value(name, value, CsvOptions(**options))


CASES: list[tuple[str, dict[str, Any], Callable[[str, Any, dict[str, Any]], Any]]] = [
    ("canal-json", {}, lambda name, value, _: canal_value(name, value)),
    ("canal-json", {"old": "all"}, lambda name, value, _: canal_value(name, value)),
    ("csv", {}, _csv_text),
    ("csv", {"include_commit_ts": True, "binary_encoding": "hex", "output_old_value": True}, _csv_text),
    ("csv", {"delimiter": "|@|", "quote": "", "output_field_header": True, "terminator": "lf"}, _csv_text),
    ("parquet", {}, lambda name, value, _: lake_value(name, value)),
]  # fmt: skip


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize(("format_name", "options", "text"), CASES, ids=[f"{n}-{case[0]}" for n, case in enumerate(CASES)])  # fmt: skip
def test_the_consumer_rebuilds_the_tables(
    tmp_path: Path, format_name: str, options: dict[str, Any], text: Callable[..., Any], keyed: bool
) -> None:
    for seed in range(scaled(3)):
        changes, rows = changes_of(seed, 120)
        batch = batch_of(NAMES, changes)
        columns = tuple(replace(column, primary_key=keyed and column.primary_key) for column in batch.table.columns)
        table = replace(
            batch.table,
            version=START,
            columns=columns,
            query="CREATE TABLE `shop`.`every thing` (…)",
            ddl_type=DdlType.CREATE_TABLE,
        )
        root = tmp_path / str(seed)
        put_sink(root, replace(batch, table=table), format_name, options)
        settings = csv_settings(options) if format_name == "csv" else settings_for(format_name, complete=True)
        found = read_sink(root, settings).tables["shop", "every thing"]
        expected = [{name: text(name, image[name], options) for name in NAMES} for image in rows.values()]
        assert sorted(map(repr, found.rows.values())) == sorted(map(repr, expected)), f"seed {seed}"
