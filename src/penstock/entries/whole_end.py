"""Where the last whole transaction of a log ends: nothing that readers may use comes after it."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from penstock.entries.stores import SOURCE, SOURCE_OPEN, SOURCE_POSITION
from penstock.log import LogReader, Position
from penstock.state import StateReader
from penstock.state.types.registry import REGISTRY_NAMESPACE


class WholeEnd(NamedTuple):
    """`position`: the last entry after which no transaction is open; entry -1 if there is none. `free_version`: a number
    above every commit_ts up to there, and below that of every DDL that capture appends after its next start."""

    position: Position
    free_version: int


def find_whole_end(reader: LogReader, known: Position) -> WholeEnd:
    """`known`: an entry after which no transaction is open. To be asked while capture does not run."""
    with closing(StateReader.open(reader)) as state:
        opened = state.store(SOURCE_OPEN).get(SOURCE)
        saved = state.store(SOURCE_POSITION).get(SOURCE)
        if opened is None:
            return WholeEnd(state.position, (saved.commit_ts if saved is not None else 0) + 1)
        found, registry = known, state.registry
        for info in reader.scan(reader.next(known), state.position):
            is_open = False
            for change in info.changes:
                if change.namespace == REGISTRY_NAMESPACE:
                    registry.load(change.value)
                elif change.value is not None and change.namespace in registry:
                    is_open |= registry.namespace_of(change.namespace) == SOURCE_OPEN.namespace
            if not is_open:
                found = info.position
        # Not its own number, which the table of a CREATE … SELECT has: the one before it was left free (CommitClock.next_open).
        return WholeEnd(found, opened.commit_ts - 1)
