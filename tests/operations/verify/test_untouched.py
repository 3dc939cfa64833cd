"""A table that was not compared is never a part of a ✓."""

from __future__ import annotations

from penstock.operations.verify.report import SinkReport, SourceDifferences
from penstock.operations.verify.verify import _hold_untouched


def test_tables_that_did_not_change_since_a_recovery_are_held_back() -> None:
    report = SinkReport("lake")
    report.table("shop.orders").with_source = SourceDifferences()
    report.table("shop.items")
    report.table("shop.notes").note = "compared with the log only"
    report.table("shop.events").differences.changes = 1
    _hold_untouched(report)
    assert report.held == ["not compared, because nothing changed since the flow was recovered: shop.items"]


def test_where_no_table_was_compared_they_are_held_back_too() -> None:
    report = SinkReport("lake")
    report.table("shop.items")
    _hold_untouched(report)
    assert report.held and not report.whole


def test_a_source_that_could_not_be_asked_is_told_once() -> None:
    report = SinkReport("lake", source_error="cannot connect")
    report.table("shop.items")
    _hold_untouched(report)
    assert not report.held and not report.whole
