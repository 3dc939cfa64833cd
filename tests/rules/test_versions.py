"""Settings that change: which version a table has at the sink, and what its readers are told where they begin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import BadInput, Corruption
from penstock.log.position import Position, Seq
from penstock.rules.passage import Passage
from penstock.rules.settings import Rule
from penstock.rules.versioned import VersionedRules
from penstock.rules.versions import RowSettings, SettingsVersion, key_fingerprint, number_at
from penstock.schema.changes import SchemaChange
from penstock.schema.model import Column, DdlType, TableSchema
from penstock.schema.parking import STOPPED_BY_RULES
from penstock.schema.view import SchemaView
from tests.rules.rows import TABLE, batch_of

KEY = "a key of some length"
ID, MAIL, NAME = Column("id", "int", False, True), Column("mail", "varchar(90)"), Column("name", "varchar(9)")
USERS = TableSchema("crm", "users", 5, (ID, MAIL, NAME), "CREATE TABLE users (…)", DdlType.CREATE_TABLE)
OTHER = replace(USERS, table="other", version=6)
NAMES = [("crm", "users"), ("crm", "other")]


def settings(*rules: dict[str, Any], key: str = KEY, **others: Any) -> RowSettings:
    made = tuple(Rule.model_validate(one) for one in rules)
    return RowSettings(made, **others, key=key_fingerprint(key) if "hmac" in str(rules) else "")


def versions(*given: RowSettings) -> list[SettingsVersion]:
    """The first from the beginning, then one from (2, 10), one from (3, 10), …"""
    return [SettingsVersion(Position(n + 1, 10) if n else Position(0, 0), 100 * n, one) for n, one in enumerate(given)]


def over(*given: RowSettings, key: str = KEY) -> VersionedRules:
    return VersionedRules(versions(*given), key)


def told(made: VersionedRules, *tables: TableSchema) -> list[SchemaChange]:
    view = SchemaView((Position(0, 0), table) for table in tables)
    return [one for one in Passage(made.newest, NAMES, view).begin(tables) if isinstance(one, SchemaChange)]


PLAIN, HIDDEN = settings(), settings({"table": "crm.users", "mask": {"mail": "redact"}})


def test_which_version_holds_at_a_position() -> None:
    given = versions(PLAIN, HIDDEN, PLAIN)
    at = [number_at(given, Position(*one)) for one in ((0, 0), (2, 9), (2, 10), (2, 11), (3, 9), (3, 10), (9, 0))]
    assert at == [0, 0, 1, 1, 1, 2, 2]


def test_a_version_survives_its_json() -> None:
    (_, made) = versions(
        PLAIN, settings({"table": "a.b", "mask": {"x": "hmac-sha256"}}, only=("a.*",), exclude=("a.c",))
    )
    assert SettingsVersion.from_json(made.to_json()) == made and KEY not in str(made.to_json())
    with pytest.raises(Corruption):
        SettingsVersion.from_json({"since": "1:2"})


def test_a_table_whose_shape_changes_gets_the_version_of_the_settings() -> None:
    assert over(PLAIN).newest.table(USERS).version == 5
    made = over(PLAIN, HIDDEN)
    assert made.at(Position(2, 9)).table(USERS).version == 5
    assert made.at(Position(2, 10)).table(USERS).version == 100
    assert made.newest.table(OTHER) is OTHER, "nothing changes for it"
    made_later = replace(USERS, version=150)
    assert made.newest.table(made_later).version == 150, "a table that is made after the change has its own"
    again = over(PLAIN, HIDDEN, PLAIN, PLAIN)
    assert again.newest.table(USERS).version == 200, "as it was is a change too, and no change is none"
    assert again.newest.table(made_later).version == 200


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        (settings({"table": "crm.users", "filter": "id > 3"}), False),
        (settings({"table": "crm.*", "mask": {"mail": "redact"}}), True),
        (settings({"table": "crm.users", "compute": {"n": "1"}}), True),
        (settings({"table": "crm.users", "drop": ["name"]}), True),
        (settings({"table": "crm.users", "route": "x.y"}), True),
        (settings({"table": "crm.users", "columns": ["id", "mail", "name"]}), False),
        (settings(only=("crm.o*",)), False),
    ],
)
def test_what_changes_a_shape(now: RowSettings, changes: bool) -> None:
    assert len(told(over(PLAIN, now), USERS)) == changes


def test_values_that_are_made_otherwise_are_another_shape() -> None:
    def computed(text: str) -> RowSettings:
        return settings({"table": "crm.users", "compute": {"n": text}})

    assert len(told(over(computed("1"), computed("2")), USERS)) == 1
    one, two = (settings({"table": "crm.users", "mask": {"mail": m}}) for m in ("sha256", "hmac-sha256"))
    (change,) = told(over(one, two), USERS)
    assert (change.table.query, change.table.ddl_type) == ("", DdlType.NONE), "the columns are the same"


def test_readers_are_told_of_columns_that_come_and_go_at_once() -> None:
    now = settings({"table": "crm.users", "drop": ["name"], "compute": {"initial": "substr(name, 1, 1)"}})
    (change,) = told(over(HIDDEN, now), USERS)
    assert change.ready and change.commit_ts == change.table.version == 100
    assert Seq.from_bytes(change.seq) == Seq(2, 10, 0, 0)
    assert change.table.query.startswith("ALTER TABLE `crm`.`users` DROP COLUMN `name`")
    assert "ADD COLUMN `initial`" in change.table.query and "MODIFY COLUMN `mail` varchar(90)" in change.table.query
    assert [one.version for one in change.needed] == [5], "readers may not have met the table before"


def test_each_table_has_a_seq_of_its_own() -> None:
    made = over(PLAIN, settings({"table": "crm.*", "drop": ["name"]}))
    assert [(c.table.table, Seq.from_bytes(c.seq).row) for c in told(made, USERS, OTHER)] == [
        ("other", 0),
        ("users", 1),
    ]


def test_a_table_that_is_taken_later_begins_with_its_creation() -> None:
    (change,) = told(over(settings(only=("crm.other",)), PLAIN), USERS, OTHER)
    assert change.table.ddl_type is DdlType.CREATE_TABLE and change.table.version == 100
    assert change.table.query.startswith("CREATE TABLE IF NOT EXISTS `crm`.`users`") and not change.needed
    (back,) = told(over(PLAIN, settings(only=("crm.other",)), PLAIN), USERS, OTHER)
    assert back.table.query.startswith("CREATE OR REPLACE TABLE `crm`.`users`"), "rows are missing in between"


def test_a_name_that_another_table_had_begins_anew() -> None:
    def routes(one: str, two: str) -> RowSettings:
        return settings({"table": "crm.users", "route": one}, {"table": "crm.other", "route": two})

    swapped = told(over(routes("x.a", "x.b"), routes("x.b", "x.a")), USERS, OTHER)
    assert [change.table.name for change in swapped] == ["x.a", "x.b"]
    assert all(change.table.query.startswith("CREATE OR REPLACE TABLE") for change in swapped)


def test_rules_that_do_not_fit_stop_the_table_where_they_begin() -> None:
    (change,) = told(over(PLAIN, settings({"table": "crm.users", "drop": ["phone"]})), USERS)
    assert change.table.reason.startswith(STOPPED_BY_RULES) and "has no column phone" in change.table.reason
    meeting = settings({"table": "crm.users", "route": "crm.other"})
    (change,) = told(over(PLAIN, meeting), USERS, OTHER)
    assert "would both be crm.other at the sink" in change.table.reason


def test_rows_and_ddl_carry_the_version() -> None:
    batch = batch_of([])
    made = over(settings({"table": "shop.*", "drop": ["s"]}), PLAIN)
    rows, _ = made.newest.rows(batch)
    assert rows.table == replace(TABLE, version=100), "also where no rule is left"
    after = replace(USERS, version=150, columns=(ID, MAIL), ddl_type=DdlType.DROP_COLUMN)
    ddl = SchemaChange(after, b"\1" * 24, 150, USERS, None, (after,), (USERS,))
    (seen,) = over(HIDDEN, PLAIN).newest.apply(ddl)
    assert isinstance(seen, SchemaChange) and seen.before is not None
    assert (seen.table.version, seen.before.version, seen.needed[0].version) == (150, 100, 100)


def test_a_key_that_is_not_there_masks_nothing() -> None:
    hashed = {"table": "crm.users", "mask": {"mail": "hmac-sha256"}}
    old, new = settings(hashed, key="the key of yesterday"), settings(hashed)
    made = over(old, new)
    assert (made.has_key(0), made.has_key(1)) == (False, True)
    with pytest.raises(BadInput, match="another mask_key"):
        made.at(Position(2, 9))
    (change,) = told(made, USERS)
    assert change.table.version == 100, "values by another key are not comparable: another version"


def test_what_is_different_is_told_in_words() -> None:
    assert PLAIN.difference(HIDDEN).startswith("rule 1 was not there and is now")
    assert PLAIN.difference(settings(only=("a.*",))) == "only was *.* and is now a.*"
    hashed = {"table": "a.b", "mask": {"x": "hmac-sha256"}}
    assert settings(hashed, key="one").difference(settings(hashed, key="two")) == "mask_key is another one"
