"""What a read gives, without Spark: the same from each sink format and from the log, and what the server itself has."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import BadInput, NotSupported, PenstockError
from penstock.spark.tables.options import Options
from penstock.spark.tables.reading import Resolved, batches, check_batch, check_stream, plan, resolve
from tests.spark.tables.conftest import FORMATS, TABLES, UNTOLD, World
from tests.spark.tables.worlds import deliver

pytestmark = pytest.mark.mariadb
PLACES = ("state", *FORMATS)


def resolved(**options: Any) -> Resolved:
    return resolve(Options.parse({name: str(value) for name, value in options.items()}))


def load(**options: Any) -> pa.Table:
    """As Spark does it: decided, planned, and each piece read by itself."""
    found = resolved(**options)
    rows = [batch for piece in plan(found) for batch in batches(found, piece)]
    return pa.Table.from_batches(rows, schema=found.arrow_schema())


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: str(list(row.values())))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("where", PLACES)
def test_a_table_as_it_is_now_is_what_the_server_has(world: World, where: str, partitions: int) -> None:
    for name in TABLES:
        found = load(path=world.path(where), table=f"shop.{name}", view="current", partitions=partitions)
        expected = world.truth[name]
        assert found.schema == expected.schema, name
        assert in_order(found) == in_order(expected), name


def test_changes_are_the_same_from_everywhere(world: World) -> None:
    """csv has no place for seqs, and commit times only if asked: there the order is that of the files."""
    for name in ("types", "sold", "rekeyed", "keyless"):
        expected = load(path=world.path("state"), table=f"shop.{name}")
        assert expected.num_rows, name
        for where in FORMATS:
            found = load(path=world.path(where), table=f"shop.{name}")
            assert found.schema == expected.schema
            own = ["_commit_ts", "_seq"] if where == "csv" else []
            assert found.drop_columns(own).equals(expected.drop_columns(own)), (name, where)


def test_a_key_that_changes_is_a_delete_and_an_insert(world: World) -> None:
    rows = load(path=world.path("state"), table="shop.orders", columnsAt="1:0", startingPosition="1:0").to_pylist()
    changed = [row for row in rows if row["_op"] == "D" and row["id"] == 1]
    assert len(changed) == 1
    assert [row["id"] for row in rows if row["_seq"] == changed[0]["_seq"]] == [1, 10]


def test_all_changes_in_one_shape(world: World) -> None:
    rows = load(path=world.path("state"), partitions=3).to_pylist()
    assert [tuple(map(int, row["position"].split(":"))) for row in rows] != []
    (update,) = [row for row in rows if row["op"] == "U" and row["table"] == "shop.orders"]
    assert (json.loads(update["before"])["id"], json.loads(update["after"])["id"]) == (1, 10)
    types = [json.loads(row["after"]) for row in rows if row["table"] == "shop.types" and row["op"] == "I"]
    assert types[0]["bu"] == 18446744073709551615 and types[0]["v"] == 'a"\\\n' and types[0]["dt"] == "2024-05-01"
    assert types[1]["dt"] is None
    for where in FORMATS:
        found = load(path=world.path(where)).to_pylist()
        assert {row["table"] for row in found} == {row["table"] for row in rows}
        if where != "csv":
            assert {row["position"] for row in found} == {row["position"] for row in rows}
        inserted = {row["after"] for row in found if row["op"] == "I" and row["table"] == "shop.types"}
        assert inserted == {row["after"] for row in rows if row["op"] == "I" and row["table"] == "shop.types"}, where


@pytest.mark.parametrize("where", PLACES)
def test_what_changes_do_not_tell_is_refused_by_its_statement(world: World, where: str) -> None:
    with pytest.raises(BadInput, match=r"CHANGE COLUMN `?old`? `?young`?.*young.*not known"):
        load(path=world.path(where), table="shop.renamed_column", view="current")
    with pytest.raises(BadInput, match=r"shop.gone is gone: DROP TABLE"):
        load(path=world.path(where), table="shop.gone", view="current")
    assert load(path=world.path(where), table="shop.gone").num_rows == 1


@pytest.mark.parametrize("where", PLACES)
def test_values_that_no_change_tells_are_refused_by_their_statement(world: World, where: str) -> None:
    for name, (_, _, alteration) in UNTOLD.items():
        with pytest.raises(BadInput, match=rf"(?s)shop.{name}.*{re.escape(alteration[:30])}.*that no change tells"):
            load(path=world.path(where), table=f"shop.{name}", view="current")


def test_rows_that_were_not_logged_whole_make_no_table(world: World) -> None:
    with pytest.raises(BadInput, match=r"without all of their columns \(b\).*binlog_row_image"):
        load(path=world.path("state"), table="shop.not_whole", view="current")


@pytest.mark.parametrize("where", FORMATS)
def test_what_the_sinks_documents_do_not_vouch_for_is_not_read(world: World, tmp_path: Path, where: str) -> None:
    sink = tmp_path / "sink"
    shutil.copytree(world.path(where), sink)
    (index,) = sink.glob("shop/keyless/*/*/*/CDC.index")
    number = next(index.parent.parent.glob("CDC*"))
    # a file that a write left over, after the one that the index names
    shutil.copy(number, number.with_name(number.name.replace("1.", "2.")))
    before = load(path=sink, table="shop.keyless")
    assert before.equals(load(path=world.path(where), table="shop.keyless"))
    index.unlink()
    assert load(path=sink, table="shop.keyless").num_rows == 0


def test_nothing_above_the_checkpoint_is_read(world: World, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    shutil.copytree(world.path("canal-json"), sink)
    rows = load(path=sink, table="shop.types")
    lines = sorted(sink.glob("shop/types/*/*/CDC*"))[0].read_text().splitlines()
    times = [json.loads(line)["_tidb"]["commitTs"] for line in lines]
    (sink / "metadata").write_text(json.dumps({"checkpoint-ts": times[0]}))
    assert rows.num_rows == 4
    assert load(path=sink, table="shop.types").num_rows == times.count(times[0]) < 4
    with pytest.raises(BadInput, match="no such table is here"):
        load(path=sink, table="shop.sold")


def test_a_missing_file_is_an_error_and_no_gap(world: World, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    shutil.copytree(world.path("parquet"), sink)
    next(sink.glob("shop/keyless/*/*/CDC*")).unlink()
    with pytest.raises(PenstockError, match=r"CDC000001.parquet is missing"):
        load(path=sink, table="shop.keyless", view="current")


def test_options_of_a_format_are_taken_from_the_sink(world: World, tmp_path: Path) -> None:
    options = {"delimiter": ";", "output_field_header": True, "include_commit_ts": True, "binary_encoding": "hex"}
    deliver(world.state_dir, tmp_path / "csv", "csv", options)
    deliver(world.state_dir, tmp_path / "dbz", "debezium-json", {"include_schema": True, "output_old_value": False})
    for where in ("csv", "dbz"):
        found = load(path=tmp_path / where, table="shop.types", view="current")
        assert in_order(found) == in_order(world.truth["types"].cast(found.schema))
    assert load(path=tmp_path / "csv", table="shop.types").column("_commit_ts").null_count == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tabel": "shop.orders"}, "no option 'tabel'.*did you mean 'table'"),
        ({"view": "curent", "table": "shop.orders"}, "view is 'curent'.*did you mean 'current'"),
        ({"view": "current"}, "no table is named"),
        ({"table": "shop.order"}, "'shop.order'.*there is shop.orders"),
        ({"partitions": "0"}, "partitions is '0'"),
        ({"maxBytesPerBatch": "many"}, "maxBytesPerBatch.*64MiB"),
        ({"startingPosition": "now"}, "startingPosition is 'now'.*earliest, latest"),
        ({"columnsAt": "-1"}, "columnsAt is '-1'.*newest, start"),
        ({"cursor": "a/b"}, "cursor is 'a/b'"),
        ({"startingPosition": "9:9"}, "the log ends at"),
    ],
)
def test_a_bad_option_is_named_with_the_nearest_one(world: World, options: dict[str, str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        resolved(**{"path": world.path("state"), **options})


def test_a_path_that_is_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"neither a sink's prefix.*nor a state directory"):
        resolved(path=tmp_path)
    with pytest.raises(BadInput, match="needs a path"):
        Options.parse({"table": "shop.orders"})


def test_what_only_streams_or_batches_have(world: World) -> None:
    with pytest.raises(BadInput, match="cursor is for streams"):
        check_batch(resolved(path=world.path("state"), cursor="mine"))
    check_stream(resolved(path=world.path("parquet")))
    with pytest.raises(NotSupported, match="no stream"):
        check_stream(resolved(path=world.path("state"), view="current", table="shop.sold"))
