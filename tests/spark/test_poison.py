"""A row that the format refuses is set aside by the sink's setting, and never passed over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.delivery.payload import dispatcher_id
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.spark.job import Job
from penstock.spark.plan import EVERYBODY, Routing
from penstock.spark.range_manifest import RangeManifest
from penstock.spark.task import _Stager
from tests.encode.test_poison import batch


class Delivery:
    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes, dict[str, Any]]] = []

    def call(self, op: str, body: Any = b"", **arguments: Any) -> dict[str, Any]:
        self.calls.append((op, bytes(body), arguments))
        return {}


def taken(poison: str, enums: list[int]) -> list[tuple[str, bytes, dict[str, Any]]]:
    job = Job("state", "socket", "raw", "run", "1:0", "csv", poison=poison)
    stager = _Stager(job, RangeManifest(Position(1, 0), Position(1, 99), 0), EVERYBODY)
    delivery: Any = Delivery()
    stager._client = delivery
    stager.take(batch(enums))
    return list(delivery.calls)


@pytest.mark.parametrize("setting", ["park", "dead-letter"])
def test_nothing_is_set_aside_where_nothing_is_refused(setting: str) -> None:
    assert [(op, given["kind"], given["rows"]) for op, _, given in taken(setting, [1, 2, 1])] == [("stage", "data", 3)]


def test_the_table_is_parked_in_front_of_the_row() -> None:
    calls = taken("park", [1, 2, 9, 1, 9])
    staged = [(given["kind"], given["first_seq"], given["last_seq"]) for _, _, given in calls]
    assert staged[-1] == ("ddl", "1:2:0:0", "1:2:0:0") and all(kind == "data" for kind, *_ in staged[:-1])
    assert sum(given["rows"] for _, _, given in calls) == 2, "nothing after it"
    parked = TableSchema.from_json(calls[-1][1])
    assert parked.parked and parked.columns and "1:2:0:0" in parked.reason and "ordinal" in parked.reason
    assert [given["ordinal"] for _, _, given in calls] == list(range(len(calls)))


def test_dead_letters_come_before_what_follows_them() -> None:
    calls = taken("dead-letter", [1, 9, 2, 9])
    dead = [(given["seq"], json.loads(body)["after"]["id"]) for op, body, given in calls if op == "dead_letter"]
    assert dead == [("1:1:0:0", 1), ("1:3:0:0", 3)]
    rows = [(given["first_seq"], given["rows"]) for op, _, given in calls if op == "stage"]
    assert rows == [("1:0:0:0", 1), ("1:2:0:0", 1)]
    assert [op for op, *_ in calls] == ["stage", "dead_letter", "stage", "dead_letter"]


@pytest.mark.parametrize(
    ("setting", "enums", "held"),
    [
        ("dead-letter", [1, 2, 1], ("1:2:0:0", 3)),
        ("dead-letter", [1, 9, 2, 9, 9, 9, 9], ("1:2:0:0", 3)),
        ("dead-letter", [9, 9, 9], None),
        ("park", [1, 9], ("1:1:0:0", 2)),
    ],
)
def test_of_a_table_that_is_held_no_dead_letter_is_waited_for(
    setting: str, enums: list[int], held: tuple[str, int] | None
) -> None:
    """Its replay brings no row for it: the cursor, and a DDL after it, would wait for ever."""
    job = Job("state", "socket", "raw", "run", "1:0", "csv", poison=setting)
    rows = batch(enums)
    identity = dispatcher_id("raw", rows.table.schema, rows.table.table)
    manifest = RangeManifest(Position(1, 0), Position(1, 99), 0)
    _Stager(job, manifest, Routing(held=frozenset({identity}))).take(rows)
    found = {each: (one["seq"], one["rows"]) for each, one in manifest.held.items()}
    assert found == ({identity: held} if held is not None else {})
