"""Rules and tables: what a sink sees of schemas, DDL and names, and what stops a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.log.position import Position, Seq
from penstock.rules.passage import Passage
from penstock.rules.rules import Rules, everything
from penstock.rules.settings import Rule
from penstock.rules.table_rules import RuleMismatch
from penstock.schema.changes import SchemaChange
from penstock.schema.ddl.session import Statement
from penstock.schema.forwarding import forwarded, without_statement
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.schema.view import SchemaView
from tests.rules.reference import Row
from tests.rules.rows import TABLE, batch_of, rows_of

ID, MAIL, NAME = Column("id", "int", False, True), Column("mail", "varchar(90)"), Column("name", "varchar(9)")
USERS = TableSchema("crm", "users", 5, (ID, MAIL, NAME), "CREATE TABLE users (…)", DdlType.CREATE_TABLE)
SEQ = b"\1" * 24


def rules(*given: dict[str, Any], wanted: Any = everything) -> Rules:
    return Rules([Rule.model_validate(one) for one in given], "a key of some length", wanted)


def altered(after: TableSchema, sql: str, before: TableSchema = USERS) -> SchemaChange:
    after = replace(after, version=6, query=sql, ddl_type=DdlType.ADD_COLUMN)
    return SchemaChange(after, SEQ, 6, before, Statement(sql, "crm"), (after,), (before,))


def seen(made: Rules, change: SchemaChange) -> TableSchema:
    (one,) = made.apply(change)
    assert isinstance(one, SchemaChange)
    return forwarded(one, everything)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"table": "crm.users", "mask": {"phone": "redact"}}, "has no column phone"),
        ({"table": "crm.users", "columns": ["mail"]}, "has id in its primary key, which the rule leaves out"),
        ({"table": "crm.*", "drop": ["ID"]}, "has id in its primary key"),
        ({"table": "crm.users", "mask": {"id": "redact"}}, "redact would make all keys the same"),
        ({"table": "crm.users", "mask": {"id": None}}, "null would make all keys the same"),
        ({"table": "crm.users", "compute": {"Mail": "1"}}, "has a column Mail already"),
        ({"table": "crm.users", "compute": {"x": "null"}}, "its value is NULL"),
        ({"table": "crm.*", "filter": "country = 'DE'"}, "there is no column 'country'"),
        ({"table": "crm.users", "filter": "id + 1"}, "a condition is wanted"),
    ],
)
def test_rules_that_do_not_fit(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(RuleMismatch, match="rule 1") as caught:
        rules(rule).table(USERS)
    assert words in caught.value.message and "crm.users" in caught.value.message


def test_a_rule_for_many_tables_passes_over_columns_that_one_lacks() -> None:
    made = rules({"table": "crm.*", "mask": {"phone": "redact", "mail": "sha256"}, "drop": ["fax"]})
    assert made.table(USERS).columns == (ID, Column("mail", "char(64)", True, False, "ascii"), NAME)


def test_a_hash_may_stand_for_a_key() -> None:
    made = rules({"table": "crm.users", "mask": {"id": "hmac-sha256"}}).table(USERS)
    assert made.columns[0] == Column("id", "char(64)", False, True, "ascii") and made.primary_key == (0,)


def test_the_order_inside_a_rule_and_between_rules() -> None:
    both = rules(
        {"table": "crm.users", "mask": {"mail": "redact"}, "compute": {"copy": "mail"}, "columns": ["id", "mail"]},
        {"table": "crm.users", "filter": "copy = '***'", "compute": {"more": "id + 1"}, "drop": ["copy"]},
    ).table(USERS)
    assert [column.name for column in both.columns] == ["id", "mail", "more"]
    assert both.query == "", "partitions may name columns that are not there"


def test_a_table_without_rules_is_left_as_it_is() -> None:
    made = rules({"table": "crm.others", "drop": ["x"]})
    assert made.table(USERS) is USERS
    batch = batch_of([Row("I", None, {})])
    assert next(made.apply(batch)) is batch


def test_rows_that_rules_do_not_fit_stop_the_table() -> None:
    (stop,) = rules({"table": "shop.*", "filter": "nope > 1"}).apply(batch_of([Row("I", None, {"id": 1})]))
    assert isinstance(stop, SchemaChange) and stop.table.parked and stop.table.name == TABLE.name
    assert stop.table.reason.startswith(STOPPED_BY_RULES) and "no column 'nope'" in stop.table.reason


def test_masks_hold_in_both_images() -> None:
    before, after = ({"id": 1, "s": text} for text in ("old", "new"))
    (batch,) = rules({"table": "shop.orders", "mask": {"s": "redact"}}).apply(batch_of([Row("U", before, after)]))
    (row,) = rows_of(batch)  # type: ignore[arg-type]
    assert row.before == {"id": 1, "s": "***"} and row.after == {"id": 1, "s": "***"}


# -- routes


def test_the_last_route_wins_and_names_are_filled_in() -> None:
    made = rules({"table": "crm.*", "route": "lake.{schema}_{table}"}, {"table": "crm.users", "route": "x.y"})
    assert made.target("crm", "orders") == ("lake", "crm_orders")
    assert made.target("crm", "users") == ("x", "y")
    assert made.target("shop", "users") == ("shop", "users")
    assert made.table(USERS).name == "x.y"


def test_two_tables_that_meet_are_stopped() -> None:
    made = rules({"table": "crm.users", "route": "crm.people"})
    names = [("crm", "users"), ("crm", "people"), ("crm", "other"), ("crm", "")]
    assert set(made.meetings(names)) == {("crm", "users"), ("crm", "people")}
    people, seq = replace(USERS, table="people"), Seq(1, 5, 0, 0).to_bytes()
    both = SchemaView([(Position(0, 0), USERS), (Position(1, 5), people)])
    (stopped,) = Passage(made, names, both).apply(SchemaChange(people, seq, 5))
    assert "crm.people and crm.users would both be crm.people" in stopped.table.reason
    both.add(Position(1, 4), TableSchema("crm", "users", 6, (), "DROP TABLE users", DdlType.DROP_TABLE))
    (free,) = Passage(made, names, both).apply(SchemaChange(people, seq, 5))
    assert not free.table.parked, "the other one is gone"
    assert not rules({"table": "crm.users", "route": "crm.people"}, wanted=lambda _s, t: t != "people").meetings(names)


def test_of_tables_that_meet_one_stops_the_name_once() -> None:
    """Delivery takes what a dispatcher gets in the order of seqs alone."""
    made = rules({"table": "shop.orders", "route": "shop.other"})
    other = replace(TABLE, table="other")
    names, both = (
        [("shop", "orders"), ("shop", "other")],
        SchemaView([(Position(0, 0), TABLE), (Position(0, 0), other)]),
    )
    passage = Passage(made, names, both)
    one = batch_of([Row("I", None, {"id": 1})])
    first = list(passage.apply(one))
    second = list(passage.apply(replace(one, table=other)))
    assert len(first) == 1 and first[0].table.parked and first[0].table.name == "shop.other"
    assert second == []
    free = Passage(made, [("shop", "orders")], both)
    assert [len(list(free.apply(one))) for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("ranges", [[4], [1, 3], [2, 2], [1, 1, 1, 1]])
def test_where_tables_meet_does_not_depend_on_where_a_range_ends(ranges: list[int]) -> None:
    """Rows from before the other table was made are at the sink, or go there: whichever batch they come with."""
    made = rules({"table": "shop.orders", "route": "shop.other"})
    other = replace(TABLE, table="other")
    view = SchemaView([(Position(0, 0), TABLE), (Position(1, 2), other)])
    whole = batch_of([Row("I", None, {"id": n}) for n in range(4)])
    found: list[Any] = []
    at = 0
    for size in ranges:
        passage = Passage(made, [("shop", "orders"), ("shop", "other")], view)
        found += passage.apply(whole.slice(at, at + size))
        at += size
    stop = next(n for n, one in enumerate(found) if isinstance(one, SchemaChange))
    assert sum(map(len, found[:stop])) == 2
    assert found[stop].seq == Seq(1, 2, 0, 0).to_bytes() and all(one.table.parked for one in found[stop:])


def test_a_table_that_has_stopped_has_nothing_more_in_its_range() -> None:
    passage = Passage(rules({"table": "shop.*", "filter": "n = 1"}), [], SchemaView())
    told, untold = Row("I", None, {"id": 1, "n": 1}), Row("I", None, {"id": 2})
    found = list(passage.apply(batch_of([told, untold, told])))
    assert [isinstance(one, SchemaChange) for one in found] == [False, True]
    assert list(passage.apply(batch_of([told]))) == []


# -- DDL


def test_a_statement_of_a_table_without_rules_stays() -> None:
    made = rules({"table": "shop.*", "drop": ["x"]})
    told = seen(
        made, altered(replace(USERS, columns=(*USERS.columns, Column("x", "int"))), "ALTER TABLE users ADD x int")
    )
    assert told.query == "ALTER TABLE `crm`.`users` ADD x int"


def test_a_statement_of_a_table_with_rules_is_made_from_what_the_sink_sees() -> None:
    made = rules({"table": "crm.users", "mask": {"mail": "sha256"}, "route": "lake.people"})
    more = replace(USERS, columns=(*USERS.columns, Column("x", "int")))
    told = seen(made, altered(more, "ALTER TABLE users ADD x int"))
    assert told.name == "lake.people"
    assert told.query == "ALTER TABLE `lake`.`people` ADD COLUMN `x` int NULL AFTER `name`"
    (create,) = made.apply(SchemaChange(USERS, SEQ, 5, None, Statement("CREATE TABLE users (…)", "crm"), (USERS,)))
    assert isinstance(create, SchemaChange)
    assert "`mail` char(64) CHARACTER SET ascii" in forwarded(create, everything).query


def test_a_column_that_the_sink_does_not_see_changes_nothing_there() -> None:
    made = rules({"table": "crm.users", "columns": ["id", "name"]})
    told = seen(
        made, altered(replace(USERS, columns=(*USERS.columns, Column("x", "int"))), "ALTER TABLE users ADD x int")
    )
    assert (told.query, told.ddl_type, len(told.columns)) == ("", DdlType.NONE, 2)


@pytest.mark.parametrize("table", ["crm.users", "crm.*"])
def test_a_ddl_that_takes_away_what_a_rule_names_stops_the_table(table: str) -> None:
    """It may be gone, or be there under another name and in the clear."""
    made = rules({"table": table, "mask": {"mail": "sha256"}})
    told = seen(made, altered(replace(USERS, columns=(ID, NAME)), "ALTER TABLE users DROP mail"))
    assert told.parked and "has no column mail any more" in told.reason
    fresh = replace(USERS, columns=(ID, NAME), table="fresh")
    assert rules({"table": "crm.*", "mask": {"mail": "sha256"}}).table(fresh).columns == (ID, NAME)


def _renamed(old: TableSchema, new: str) -> SchemaChange:
    sql = f"RENAME TABLE {old.table} TO {new}"
    gone = TableSchema("crm", old.table, 6, (), sql, DdlType.RENAME_TABLE, other=f"crm.{new}")
    came = replace(old, table=new, version=6, query=sql, ddl_type=DdlType.RENAME_TABLE, other=old.name)
    return SchemaChange(came, SEQ, 6, None, Statement(sql, "crm"), (gone, came), (old,))


def test_a_rename_keeps_its_rules_or_stops() -> None:
    masked = {"mask": {"mail": "sha256"}}
    assert seen(rules({"table": "crm.*", **masked}), _renamed(USERS, "people")).query == (
        "RENAME TABLE `crm`.`users` TO `crm`.`people`"
    )
    told = seen(rules({"table": "crm.users", **masked}), _renamed(USERS, "people"))
    assert told.parked and "crm.users became crm.people, which has other rules" in told.reason


def test_a_table_that_has_stopped_stays_so_under_further_names() -> None:
    """Neither of the later names has rules, and its rows would be there in the clear."""
    names = [("crm", name) for name in ("users", "p", "people")]
    passage = Passage(rules({"table": "crm.users", "mask": {"mail": "redact"}}), names, SchemaView())
    first, second = _renamed(USERS, "p"), _renamed(replace(USERS, table="p"), "people")
    told = [one.table for change in (first, second) for one in passage.apply(change) if isinstance(one, SchemaChange)]
    assert [(one.name, one.parked) for one in told] == [("crm.p", True), ("crm.people", True)]
    assert "crm.p has stopped, and became crm.people" in told[1].reason
    people = replace(batch_of([Row("I", None, {"id": 1})]), table=replace(TABLE, schema="crm", table="people"))
    assert list(passage.apply(people)) == []


def test_a_rename_from_a_name_that_the_sink_does_not_take_begins_anew() -> None:
    """As the last step of an online schema change does: the copy was nobody's."""
    copy = replace(USERS, table="_users_new")
    made = rules({"table": "crm.users", "mask": {"mail": "sha256"}}, wanted=lambda _s, t: not t.startswith("_"))
    told = seen(made, _renamed(copy, "users"))
    assert told.ddl_type is DdlType.CREATE_TABLE and "`mail` char(64)" in told.query


def test_a_rename_between_names_that_are_one_at_the_sink() -> None:
    made = rules({"table": "crm.users", "route": "x.t"}, {"table": "crm.people", "route": "x.t"})
    came = _renamed(USERS, "people")
    told = seen(made, came)
    assert told.parked and "crm.users became crm.people, and both would be x.t" in told.reason
    assert list(made.apply(replace(came, table=came.together[0]))) == []


def test_a_rename_of_routed_tables() -> None:
    made = rules({"table": "crm.*", "route": "lake.{table}_x"})
    assert seen(made, _renamed(USERS, "people")).query == "RENAME TABLE `lake`.`users_x` TO `lake`.`people_x`"


def test_what_the_sink_does_not_take_is_not_told() -> None:
    made = rules(wanted=lambda _s, t: t != "users")
    told = seen(made, _renamed(USERS, "people"))
    assert told.ddl_type is DdlType.CREATE_TABLE, "the table begins here"


def test_databases() -> None:
    made = rules({"table": "crm.*", "route": "lake.{table}"})
    assert not made.sees_database("crm") and made.sees_database("shop")
    drop = SchemaChange(TableSchema("lake", "", 6, (), "DROP DATABASE lake", DdlType.DROP_SCHEMA), SEQ, 6)
    assert list(made.apply(drop)) == [], "others' tables are in it"
    drop = SchemaChange(TableSchema("shop", "", 6, (), "DROP DATABASE shop", DdlType.DROP_SCHEMA), SEQ, 6)
    assert list(made.apply(drop)) == [drop]


def test_a_copy_that_takes_the_place_of_a_table_must_have_what_rules_name() -> None:
    """As gh-ost and pt-online-schema-change do it: the column is there under another name, in a table that never had it."""
    phone = Column("phone", "varchar(90)")
    copy = replace(USERS, table="_users_new", columns=(ID, phone, NAME))
    moved = replace(copy, table="users", version=6, ddl_type=DdlType.RENAME_TABLE, other="crm._users_new")
    left = replace(copy, version=6, columns=(), ddl_type=DdlType.RENAME_TABLE, other="crm.users")
    old = replace(USERS, table="_users_old", version=6, ddl_type=DdlType.RENAME_TABLE, other="crm.users")
    change = SchemaChange(moved, SEQ, 6, USERS, None, (moved, left, old), (USERS, copy))
    made = rules({"table": "crm.*", "mask": {"mail": "redact"}})
    (stopped,) = made.apply(change)
    assert "has no column mail any more" in stopped.table.reason
    replaced = replace(moved, ddl_type=DdlType.CREATE_TABLE, other="")
    (stopped,) = made.apply(SchemaChange(replaced, SEQ, 6, USERS, None, (replaced,), (USERS,)))
    assert "has no column mail any more" in stopped.table.reason, "CREATE OR REPLACE TABLE"


def test_partitions_tell_nothing_of_a_column_that_is_hidden() -> None:
    born = Column("born", "date")
    query = "CREATE TABLE users (id int, born date) PARTITION BY RANGE COLUMNS(born) (PARTITION p VALUES LESS THAN ('1984-05-06'))"
    table = replace(USERS, columns=(ID, born), query=query)
    made = rules({"table": "crm.users", "mask": {"born": None}})
    assert made.table(table).columns == table.columns, "its definition says NULL already"
    assert "1984" not in without_statement(made.table(table), first=True).query
