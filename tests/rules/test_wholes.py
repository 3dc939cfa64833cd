"""Several tables of the source that are one at the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.log.position import Position, Seq
from penstock.rules.expressions.columns import physical_type
from penstock.rules.holds import Hold
from penstock.rules.passage import Passage
from penstock.rules.rules import Change, Rules, everything
from penstock.rules.settings import Rule
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.schema.changes import OP_INSERT, SEQ_DTYPE, ChangeBatch, Presence, SchemaChange
from penstock.schema.forwarding import forwarded
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.pack import PackedSchemas, SchemaPacker
from penstock.schema.view import SchemaAt, SchemaView

ID, TOTAL = Column("id", "bigint", False, True), Column("total", "int", False)
NOTE = Column("note", "varchar(9)", False, charset="utf8mb4")
TO_ONE = {"table": "billing.invoice_*", "route": "lake.invoices"}


def part(number: int, version: int, *columns: Column, kind: DdlType = DdlType.CREATE_TABLE) -> TableSchema:
    made = columns or ((ID, TOTAL) if kind not in (DdlType.DROP_TABLE, DdlType.RENAME_TABLE) else ())
    return TableSchema("billing", f"invoice_{number}", version, made, "…", kind)


class Source:
    """Tables over the log, and its changes: entry n is at position (1, n); a statement's version is its entry."""

    def __init__(self, *tables: TableSchema) -> None:
        self.view = SchemaView((Position(0, at), table) for at, table in enumerate(tables))

    def ddl(self, entry: int, *tables: TableSchema) -> list[SchemaChange]:
        position = Position(1, entry)
        before = [self.view.before(one.schema, one.table, position) for one in tables]
        for one in tables:
            self.view.add(position, one)
        seq, needed = Seq(1, entry, 0, 0).to_bytes(), tuple(one for one in before if one is not None and one.columns)
        return [
            SchemaChange(one, seq, one.version, was, None, tables, needed)
            for one, was in zip(tables, before, strict=True)
        ]

    def rows(self, number: int, *entries: int, **values: Any) -> ChangeBatch:
        """An insert in each of the entries, with the entry as its id; all of one version of the table."""
        table = self.view.at("billing", f"invoice_{number}", Position(1, entries[0]))
        seq = np.frombuffer(b"".join(Seq(1, entry, 0, 0).to_bytes() for entry in entries), SEQ_DTYPE)
        given = {"id": list(entries), "total": [number] * len(entries)}
        given |= {name: [value] * len(entries) for name, value in values.items()}
        after = [pa.array(given[column.name], physical_type(column)) for column in table.columns]
        before = [pa.nulls(len(entries), column.type) for column in after]
        op = np.full(len(entries), OP_INSERT, np.uint8)
        return ChangeBatch(table, op, seq, np.array(entries, np.uint64), before, after)

    def passage(self, *rules: dict[str, Any], **others: Any) -> Passage:
        settings = RowSettings(tuple(Rule.model_validate(one) for one in rules or (TO_ONE,)), **others)
        made = VersionedRules([SettingsVersion(BEGINNING, 0, settings)])
        return Passage(made.newest, self.view.names(), self.view)


def passed(passage: Passage, *groups: Iterable[Change]) -> list[Change]:
    found: list[Change] = []
    for group in groups:
        passage.next_group()
        for change in group:
            found += passage.apply(change)
    return [*found, *passage.finish()]


def shown(changes: Iterable[Change]) -> list[Any]:
    """Of rows, the version and each row; of statements, what readers are told, or the reason of a stop."""
    found: list[Any] = []
    for one in changes:
        assert one.table.name == "lake.invoices" or one.table.parked, one.table
        if isinstance(one, ChangeBatch):
            names = [column.name for column in one.table.columns]
            values = zip(*(column.to_pylist() for column in one.after), strict=True)
            found += [(one.table.version, dict(zip(names, row, strict=True))) for row in values]
        else:
            found.append(forwarded(one, everything).query if not one.table.parked else f"stop: {one.table.reason}")
    return found


def test_rows_of_a_group_are_in_the_order_of_the_log() -> None:
    source = Source(part(1, 5), part(2, 6))
    found = passed(source.passage(), [source.rows(1, 10, 12, 15), source.rows(2, 11, 13)], [source.rows(1, 20)])
    assert all(one.seq.dtype == SEQ_DTYPE for one in found if isinstance(one, ChangeBatch))
    far = passed(source.passage(), [source.rows(1, 255, 257, 512), source.rows(2, 256, 258)])
    assert [row["id"] for _, row in shown(far)] == [255, 256, 257, 258, 512], "by all bytes of the seq"
    assert [len(one) for one in found if isinstance(one, ChangeBatch)] == [5, 1]
    assert shown(found) == [(6, {"id": at, "total": of}) for at, of in ((10, 1), (11, 2), (12, 1), (13, 2), (15, 1), (20, 1))]  # fmt: skip


@pytest.mark.parametrize("cut", range(1, 6))
def test_whatever_is_decoded_together_the_rows_are_the_same(cut: int) -> None:
    source = Source(part(1, 5), part(2, 6))
    whole = passed(source.passage(), [source.rows(1, 10, 12, 15), source.rows(2, 11, 13)])
    entries = [10, 11, 12, 13, 15]
    groups = []
    for some in (entries[:cut], entries[cut:]):
        of = [(number, [at for at in some if at in mine]) for number, mine in ((1, (10, 12, 15)), (2, (11, 13)))]
        groups.append([source.rows(number, *mine) for number, mine in of if mine])
    assert shown(passed(source.passage(), *groups)) == shown(whole)


def test_a_column_comes_with_the_first_part_and_goes_with_the_last() -> None:
    source = Source(part(1, 5), part(2, 6))
    groups: list[Iterable[Change]] = [
        source.ddl(20, part(1, 20, ID, TOTAL, NOTE, kind=DdlType.ADD_COLUMN)),
        [source.rows(2, 21), source.rows(1, 22, note="x")],
        source.ddl(30, part(2, 30, ID, TOTAL, NOTE, kind=DdlType.ADD_COLUMN)),
        [source.rows(1, 31, note="y"), source.rows(2, 32, note="z")],
        source.ddl(40, part(1, 40, ID, TOTAL, kind=DdlType.DROP_COLUMN)),
        source.ddl(50, part(2, 50, ID, TOTAL, kind=DdlType.DROP_COLUMN)),
    ]
    alter = "ALTER TABLE `lake`.`invoices`"
    note = "`note` varchar(9) CHARACTER SET utf8mb4"
    assert shown(passed(source.passage(), *groups)) == [
        f"{alter} ADD COLUMN {note} NULL AFTER `total`",
        (20, {"id": 21, "total": 2, "note": None}),
        (20, {"id": 22, "total": 1, "note": "x"}),
        f"{alter} MODIFY COLUMN {note} NOT NULL",
        (30, {"id": 31, "total": 1, "note": "y"}),
        (30, {"id": 32, "total": 2, "note": "z"}),
        f"{alter} MODIFY COLUMN {note} NULL",
        f"{alter} DROP COLUMN `note`",
    ]


def test_rows_before_and_after_a_shape_that_only_a_table_map_told() -> None:
    """No statement parts the group there."""
    source = Source(part(1, 5), part(2, 6))
    early = source.rows(1, 10, 14)
    source.view.add(Position(1, 12), part(2, 12, ID, TOTAL, NOTE, kind=DdlType.NONE))
    found = shown(passed(source.passage(), [early, source.rows(2, 13, note="n")]))
    assert [(version, row["id"], row.get("note", "-")) for version, row in found] == [
        (6, 10, "-"),
        (12, 13, "n"),
        (12, 14, None),
    ]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            (ID, replace(TOTAL, mysql_type="bigint")),
            "total is int in billing.invoice_1 and bigint in billing.invoice_2",
        ),
        ((ID, replace(TOTAL, primary_key=True)), "total is int in billing.invoice_1 and int, in the primary key"),
        ((TOTAL,), "id is in the primary key of billing.invoice_1, and not in every other table"),
    ],
)
def test_parts_that_do_not_go_together_stop_the_whole(columns: tuple[Column, ...], words: str) -> None:
    source = Source(part(1, 5), part(2, 6))
    groups: list[Iterable[Change]] = [
        [source.rows(1, 10)],
        source.ddl(20, part(2, 20, *columns, kind=DdlType.MODIFY_COLUMN)),
        [source.rows(1, 21)],
    ]
    rows, stop = shown(passed(source.passage(), *groups))
    assert rows[1]["id"] == 10 and words in stop
    (later,) = shown(passed(source.passage(), [source.rows(1, 21)]))
    assert words in later, "also in a range of its own"


def test_a_part_that_is_dropped_leaves_its_rows_and_the_whole() -> None:
    source = Source(part(1, 5), part(2, 6))
    gone = source.ddl(20, part(2, 20, kind=DdlType.DROP_TABLE))
    assert shown(passed(source.passage(), gone, [source.rows(1, 21)])) == ["", (20, {"id": 21, "total": 1})]
    last = source.ddl(30, part(1, 30, kind=DdlType.DROP_TABLE))
    assert passed(source.passage(), last) == []
    again = source.ddl(40, part(3, 40))
    (made,) = shown(passed(source.passage(), again))
    assert made.startswith("CREATE TABLE IF NOT EXISTS `lake`.`invoices`")


def test_a_column_with_different_charsets_holds_the_texts_of_all() -> None:
    source = Source(part(1, 5, ID, TOTAL, replace(NOTE, charset="latin1")))
    made = source.ddl(20, part(2, 20, ID, TOTAL, NOTE))
    (told,) = shown(passed(source.passage(), made))
    assert told == "ALTER TABLE `lake`.`invoices` MODIFY COLUMN `note` varchar(9) CHARACTER SET utf8mb4 NOT NULL"


@pytest.mark.parametrize("packed", [False, True], ids=["in one range", "later"])
def test_a_database_that_is_dropped_and_made_again(packed: bool) -> None:
    """Versions do not go back, and the tables that were in it are no parts any more; wherever a range begins."""
    other = TableSchema("archive", "invoice_9", 7, (ID, TOTAL, NOTE), "…", DdlType.CREATE_TABLE)
    made = [SchemaAt(Position(0, 0), part(1, 5)), SchemaAt(Position(0, 1), other)]
    for entry, kind in ((20, DdlType.DROP_SCHEMA), (21, DdlType.CREATE_SCHEMA)):
        made.append(SchemaAt(Position(1, entry), TableSchema("archive", "", entry, (), "…", kind)))
    source = Source()
    source.view = SchemaView(made)
    if packed:
        packer = SchemaPacker(made[:2])
        for one in made[2:]:
            packer.take(one)
        source.view = PackedSchemas(*packer.pack())
    rules = {"table": "*.invoice_*", "route": "lake.invoices"}
    assert shown(passed(source.passage(rules), [source.rows(1, 22)])) == [(20, {"id": 22, "total": 1})]
    assert source.view.find("archive", "invoice_9", Position(1, 22)) is None


def test_a_part_that_is_emptied_stops_the_whole() -> None:
    source = Source(part(1, 5), part(2, 6))
    (stop,) = shown(passed(source.passage(), source.ddl(20, part(2, 20, kind=DdlType.TRUNCATE_TABLE))))
    assert "billing.invoice_2 was emptied" in stop


def test_several_parts_in_one_statement_are_told_once() -> None:
    source = Source(part(1, 5), part(2, 6), part(3, 7))
    drop = source.ddl(20, *(part(number, 20, kind=DdlType.DROP_TABLE) for number in (1, 2)))
    assert shown(passed(source.passage(), drop)) == [""]


def _renamed(source: Source, entry: int, old: TableSchema, new: str) -> list[SchemaChange]:
    went = replace(old, version=entry, columns=(), ddl_type=DdlType.RENAME_TABLE, other=f"billing.{new}")
    came = replace(old, table=new, version=entry, ddl_type=DdlType.RENAME_TABLE, other=old.name)
    return source.ddl(entry, came, went)


def test_renames() -> None:
    source = Source(part(1, 5), part(2, 6))
    inside = _renamed(source, 20, part(2, 6), "invoice_9")
    assert shown(passed(source.passage(), inside, [source.rows(9, 21)])) == ["", (20, {"id": 21, "total": 9})]
    out = passed(source.passage(), _renamed(source, 30, part(1, 5), "archive"))
    assert "its earlier rows are a part of lake.invoices" in str(shown(out))
    source = Source(part(1, 5), replace(part(2, 6), table="fresh"))
    into = _renamed(source, 20, replace(part(2, 6), table="fresh"), "invoice_2")
    assert "billing.fresh became billing.invoice_2" in shown(passed(source.passage(), into)[:1])[0]
    source = Source(part(1, 5), replace(part(2, 6), table="fresh"))
    into = _renamed(source, 20, replace(part(2, 6), table="fresh"), "invoice_2")
    assert shown(passed(source.passage(exclude=("billing.fresh",)), into[:1])) == [""], "as every table that begins"


def test_a_table_that_is_held_back_does_not_come_in_under_another_name() -> None:
    """What a rule hid of it may be there in the clear; that the sink leaves it out by now does not help."""
    secret = replace(part(1, 6, ID, TOTAL, NOTE), table="secret")
    source = Source(part(1, 5), secret)
    came = [one for one in _renamed(source, 20, secret, "invoice_9") if one.table.table != "secret"]
    hold = Hold("billing", "secret", ("billing", "secret"), "mail", "{}", "no column mail any more")
    rules = Rules([Rule.model_validate(TO_ONE)], wanted=lambda _schema, table: table != "secret", held=[hold])
    (stop,) = shown(passed(Passage(rules, source.view.names(), source.view), came))
    assert "no column mail any more" in stop


def test_rows_up_to_what_stops_a_part_go_on() -> None:
    rule = {**TO_ONE, "filter": "total > 0"}
    source = Source(part(1, 5), part(2, 6))
    bad = replace(source.rows(2, 11, 14), present_after=Presence(np.array([[3], [1]], np.uint8), np.arange(2)))
    found = shown(passed(source.passage(rule), [source.rows(1, 10, 13, 15), bad]))
    assert [one[1]["id"] for one in found[:-1]] == [10, 11, 13] and "without column total" in found[-1]


def test_a_parked_part_stops_the_whole_behind_earlier_rows() -> None:
    source = Source(part(1, 5), part(2, 6))
    parked = replace(part(2, 12), columns=(), ddl_type=DdlType.UNKNOWN, reason="not understood")
    held = SchemaChange(parked, Seq(1, 12, 0, 0).to_bytes(), 12, parked)
    found = shown(passed(source.passage(), [held, source.rows(1, 10, 15)]))
    assert found == [(6, {"id": 10, "total": 1}), "stop: not understood"]


def test_a_table_that_has_the_name_without_a_route() -> None:
    stranger = replace(part(1, 5), schema="lake", table="invoices")
    source = Source(part(1, 5), stranger)
    (stop,) = shown(passed(source.passage(), [source.rows(1, 10)]))
    assert "lake.invoices would be a part of lake.invoices, and has no route to it" in stop


def test_a_sequence_is_no_part() -> None:
    sequence = TableSchema("billing", "invoice_ids", 7, (), "CREATE SEQUENCE …", DdlType.CREATE_SEQUENCE)
    source = Source(part(1, 5), sequence)
    assert [row["id"] for _, row in shown(passed(source.passage(), [source.rows(1, 10)]))] == [10]
    assert len(_begun(source, None, TO_ONE)) == 1


def test_masks_and_computed_columns_of_parts() -> None:
    rules = [{"table": "billing.*", "mask": {"note": "redact"}}, {**TO_ONE, "compute": {"twice": "total * 2"}}]
    source = Source(part(1, 5), part(2, 6, ID, TOTAL, NOTE))
    found = shown(passed(source.passage(*rules), [source.rows(1, 10), source.rows(2, 11, note="secret")]))
    assert [row for _, row in found] == [
        {"id": 10, "total": 1, "note": None, "twice": 2},
        {"id": 11, "total": 2, "note": "***", "twice": 4},
    ]


# -- settings


def _begun(source: Source, *given: dict[str, Any] | None) -> list[SchemaChange]:
    """Where the last of the settings begins, at (2, 0)."""
    settings = [RowSettings((Rule.model_validate(one),) if one else ()) for one in given]
    made = VersionedRules(
        [SettingsVersion(Position(2, at) if at else BEGINNING, 100 * at, one) for at, one in enumerate(settings)]
    )
    passage = Passage(made.newest, source.view.names(), source.view)
    tables = source.view.in_force(Position(1, 99))
    return [one for one in passage.begin(tables) if isinstance(one, SchemaChange)]


def test_where_settings_begin() -> None:
    source = Source(part(1, 5), part(2, 6, ID, TOTAL, NOTE))
    (made,) = _begun(source, None, TO_ONE)
    assert made.table.query.startswith("CREATE TABLE IF NOT EXISTS `lake`.`invoices`") and made.table.version == 100
    assert [column.name for column in made.table.columns] == ["id", "total", "note"]
    (fewer,) = _begun(source, TO_ONE, {**TO_ONE, "drop": ["note"]})
    assert fewer.table.query == "ALTER TABLE `lake`.`invoices` DROP COLUMN `note`" and fewer.table.version == 100
    own, rest = _begun(source, TO_ONE, {**TO_ONE, "table": "billing.invoice_1*"})
    assert own.table.name == "billing.invoice_2" and own.table.query.startswith("CREATE TABLE")
    assert rest.table.name == "lake.invoices" and rest.table.version == 100, "its version never goes back"
    assert own.seq < rest.seq
    (apart,) = _begun(source, TO_ONE, {**TO_ONE, "table": "billing.invoice_1"})[:1]
    assert (apart.table.name, apart.table.version) == ("lake.invoices", 100)
