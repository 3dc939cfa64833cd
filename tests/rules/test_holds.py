"""What a rule holds back stays back, whatever settings change, until the rule itself does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.changefeed.settings_versions import versions_with
from penstock.entries.whole_end import WholeEnd
from penstock.log.position import Position
from penstock.operations.tail.hidden import HiddenTables
from penstock.rules.passage import Passage
from penstock.rules.settings import Rule
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import BEGINNING, RowSettings, SettingsVersion
from penstock.schema.changes import ChangeBatch, SchemaChange
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.view import SchemaView
from tests.rules.reference import Row
from tests.rules.rows import TABLE, batch_of

ID, MAIL, EMAIL = Column("id", "int", False, True), Column("mail", "varchar(90)"), Column("email", "varchar(90)")
USERS = TableSchema("crm", "users", 5, (ID, MAIL), "CREATE TABLE users (…)", DdlType.CREATE_TABLE)
RENAMED = replace(USERS, version=6, columns=(ID, EMAIL), query="ALTER TABLE …", ddl_type=DdlType.MODIFY_COLUMN)
HISTORY = (USERS, RENAMED)
MASK = {"table": "crm.*", "mask": {"mail": "redact"}}
ROUTE = {"table": "crm.users", "route": "x.people"}


def settings(*rules: dict[str, Any], **others: Any) -> RowSettings:
    return RowSettings(tuple(Rule.model_validate(one) for one in rules), **others)


def over(first: RowSettings, *later: RowSettings, history: tuple[TableSchema, ...] = HISTORY) -> VersionedRules:
    """Each of the later settings begins where nothing was captured since the ones before, from (2, 10) on."""
    known: tuple[SettingsVersion, ...] = (SettingsVersion(BEGINNING, 0, first),)
    for number, one in enumerate(later, 1):
        end = WholeEnd(Position(number + 1, 9), 100 * number)
        known = versions_with(
            known, one, untouched=False, end=lambda end=end: end, history=lambda: history, delivered=5
        )
    assert [SettingsVersion.from_json(version.to_json()) for version in known] == list(known)
    return VersionedRules(known)


def passed(made: VersionedRules, table: TableSchema = RENAMED) -> tuple[list[SchemaChange], list[Any]]:
    """What the sink gets where the newest settings begin, and of a row after it."""
    passage = Passage(made.newest, [("crm", "users"), ("crm", "people")], SchemaView())
    begun = [one for one in passage.begin([table]) if isinstance(one, SchemaChange)]
    row = batch_of([Row("I", None, {"id": 9})])
    row = replace(row, table=replace(table, columns=TABLE.columns))
    return begun, [one for one in passage.apply(row) if isinstance(one, ChangeBatch)]


def test_a_masked_column_under_another_name_is_not_told_under_a_new_route() -> None:
    begun, rows = passed(over(settings(MASK), settings(MASK, ROUTE)))
    assert [(one.table.name, one.table.parked) for one in begun] == [("x.people", True)]
    assert "has no column mail any more" in begun[0].table.reason and rows == []


@pytest.mark.parametrize(
    "now",
    [
        settings({**MASK, "filter": "id > 3"}, ROUTE),
        settings({**MASK, "table": "crm.users*"}, ROUTE),
        settings({"table": "crm.other", "drop": ["x"]}, MASK, {**ROUTE, "compute": {"one": "1"}}),
    ],
)
def test_the_rule_may_be_elsewhere_and_do_more(now: RowSettings) -> None:
    assert passed(over(settings(MASK), now))[1] == []


@pytest.mark.parametrize(
    "now",
    [
        settings({"table": "crm.*", "mask": {"mail": "redact", "email": "redact"}}, ROUTE),
        settings({"table": "crm.o*", "mask": {"mail": "redact"}}, ROUTE),
        settings(ROUTE),
    ],
)
def test_whoever_changes_the_rule_knows(now: RowSettings) -> None:
    made = over(settings(MASK), now)
    assert made.versions[-1].held == () and not passed(made)[0][0].table.parked


def test_a_column_that_a_select_names() -> None:
    """It leaves out `mail`. That was renamed, and a new one has come since: the statement fits again, and shows the old values."""
    rule = {"table": "crm.users", "sql": "SELECT * EXCEPT (Mail), upper(x) AS mail FROM this"}
    again = replace(RENAMED, version=7, columns=(ID, EMAIL, MAIL))
    for now, held in ((rule, {"users"}), ({**rule, "sql": "SELECT * EXCEPT (mail, email) FROM this"}, set())):
        made = over(settings(rule), settings(now, ROUTE), history=(*HISTORY, again))
        assert {hold.table for hold in made.versions[-1].held} == held
    computed = {"table": "crm.users", "sql": "SELECT *, mail(id) AS mail, 'mail' AS b FROM this"}
    assert over(settings(computed), settings(computed, ROUTE)).versions[-1].held == (), "a name that it gives itself"


def test_it_stays_back_over_several_changes_and_while_it_is_left_out() -> None:
    out = settings(MASK, ROUTE, exclude=("crm.users",))
    made = over(settings(MASK), out, settings(MASK, ROUTE))
    assert passed(made)[1] == [] and passed(made)[0][0].table.parked


def test_a_statement_while_the_table_is_left_out_counts() -> None:
    """Its rows were at the sink, masked. When it comes back, they may be there in the clear."""
    out = settings(MASK, exclude=("crm.users",))
    late = (USERS, replace(RENAMED, version=150))
    assert passed(over(settings(MASK), out, settings(MASK), history=late), late[1])[1] == []
    never = over(out, settings(MASK), settings(MASK, ROUTE), history=HISTORY)
    assert never.versions[-1].held == (), "it was never there"


def test_a_name_with_other_rules() -> None:
    exact = {"table": "crm.users", "mask": {"mail": "redact"}}
    gone = TableSchema("crm", "users", 6, (), "RENAME", DdlType.RENAME_TABLE, other="crm.people")
    people = replace(USERS, table="people", version=6, ddl_type=DdlType.RENAME_TABLE, other="crm.users")
    history = (USERS, gone, people)
    to_x = {"table": "crm.people", "route": "x.people"}
    assert passed(over(settings(exact), settings(exact, to_x), history=history), people)[1] == []
    same = settings(exact, {**exact, "table": "crm.people"}, to_x)
    assert over(settings(exact), same, history=history).versions[-1].held == ()


def test_under_a_further_name() -> None:
    gone = TableSchema("crm", "users", 7, (), "RENAME", DdlType.RENAME_TABLE, other="crm.people")
    people = replace(RENAMED, table="people", version=7, ddl_type=DdlType.RENAME_TABLE, other="crm.users")
    made = over(settings(MASK), settings(MASK, {**ROUTE, "table": "crm.people"}), history=(*HISTORY, gone, people))
    assert passed(made, people)[1] == [] and {hold.table for hold in made.versions[-1].held} == {"people"}
    later = replace(people, version=170)
    left = replace(gone, version=170)
    held = over(settings(MASK), settings(MASK, ROUTE))
    passage = Passage(held.newest, [("crm", "users"), ("crm", "people")], SchemaView())
    (stop,) = passage.apply(SchemaChange(later, b"\1" * 24, 170, None, None, (left, later), (RENAMED,)))
    assert stop.table.parked, "renamed under the new settings"


def test_what_was_dropped_holds_nothing_back() -> None:
    drop = TableSchema("crm", "users", 7, (), "DROP", DdlType.DROP_TABLE)
    fresh = replace(RENAMED, version=8, ddl_type=DdlType.CREATE_TABLE)
    assert over(settings(MASK), settings(MASK, ROUTE), history=(*HISTORY, drop, fresh)).versions[-1].held == ()


def test_what_is_delivered_was_not_held_back() -> None:
    """As a sink that came later, and began with the table as it is."""
    history = (replace(USERS, version=3), replace(RENAMED, version=4))
    assert over(settings(MASK), settings(MASK, ROUTE), history=history).versions[-1].held == ()


def test_a_tail_judges_by_the_rules_since_they_hold() -> None:
    made = over(settings(), settings(MASK))
    hidden = HiddenTables(made.newest, HISTORY, made.versions[-1].held, made.versions[-1].table_version)
    assert hidden.reason(("crm", "users"), Position(9, 9)) == "", "the sink has it too"
    made = over(settings(MASK), settings(MASK, ROUTE))
    hidden = HiddenTables(made.newest, HISTORY, made.versions[-1].held, made.versions[-1].table_version)
    assert "no column mail any more" in hidden.reason(("crm", "users"), Position(9, 9))
