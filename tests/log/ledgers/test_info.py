"""The ledger list: what it says is what it was given, and a ledger that did not change is not encoded again."""

from __future__ import annotations

import dataclasses
import json
from uuid import UUID

from penstock.log.ledgers.info import LedgerInfo, LedgerList


def test_the_list_is_encoded_from_what_each_ledger_keeps() -> None:
    """A ledger keeps its own text, so that a roll of a log with ten thousand ledgers encodes two of them and not all."""
    info = LedgerInfo(1, 1, "sealed", 3, 400, 5, 6)
    listed = LedgerList(UUID(int=7), 1, 3, 0, (info, LedgerInfo(2, 1)), deleting=(9,), properties=(("a", 'b"]}'),))
    assert LedgerList.decode(listed.encode()) == listed
    assert info.text() is info.text()
    changed = dataclasses.replace(info, entries=4)
    assert json.loads(changed.text())["entries"] == 4
    assert "_text" not in info.document()
    assert LedgerInfo.of(info.document()) == info
    assert hash(LedgerInfo.of(info.document())) == hash(info)
