"""What shaped the rows at a sink is recorded, and other rules are refused once a row has passed."""

from __future__ import annotations

import pytest

from penstock.errors import BadInput
from penstock.log.position import Position, Seq
from penstock.rules.settings import Rule, identity

from .conftest import OpenKeeper

A = "a" * 32
OLD = identity((Rule(table="a.b", drop=("x",)),), None)
NEW = identity((Rule(table="a.b", drop=("y",)),), None)


def test_rules_may_change_until_something_was_taken(open_keeper: OpenKeeper) -> None:
    open_keeper().keep_rules(OLD)
    open_keeper().keep_rules(NEW)
    keeper = open_keeper()
    keeper.keep_rules(NEW)
    keeper.create({A: ("a", "b")})
    with pytest.raises(BadInput, match=r'rule 1 was .*"y".* and is now .*"x"'):
        open_keeper().keep_rules(OLD)
    open_keeper().keep_rules(NEW)


def test_rows_that_a_filter_left_out_have_been_taken_too(open_keeper: OpenKeeper) -> None:
    keeper = open_keeper()
    keeper.keep_rules(OLD)
    start = keeper.begin_run("r1")
    keeper.published("r1", start, Position(1, 9), 900, {})
    assert keeper.mark_delete == Position(1, 9)
    with pytest.raises(BadInput, match="new name and a new url"):
        open_keeper().keep_rules(NEW)


def test_a_changefeed_without_rules_stays_without(open_keeper: OpenKeeper) -> None:
    keeper = open_keeper()
    keeper.create({A: ("a", "b")})  # as one did before there were rules: nothing is recorded
    keeper.keep_rules("")
    with pytest.raises(BadInput, match="rule 1 was not there and is now"):
        open_keeper().keep_rules(NEW)
    open_keeper().keep_rules("")


def test_another_key_is_told_as_such(open_keeper: OpenKeeper) -> None:
    rules = (Rule(table="a.b", mask={"x": "hmac-sha256"}),)
    keeper = open_keeper()
    keeper.keep_rules(identity(rules, "the first key of all"))
    keeper.create({A: ("a", "b")})
    keeper.begin_run("r1")
    keeper.published("r1", Position(1, 0), Position(1, 1), 1, {A: Seq(1, 1, 0, 0)})
    with pytest.raises(BadInput, match="mask_key is another one"):
        open_keeper().keep_rules(identity(rules, "the second key of all"))
