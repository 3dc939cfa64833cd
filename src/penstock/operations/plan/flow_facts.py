"""What a log that is there already says of its tables: which it knows, and which were loaded or are to be."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from penstock.entries.stores import LOAD_SCOPE, LOAD_TABLE, SCHEMA_HISTORY, SOURCE, SOURCE_POSITION
from penstock.errors import Unavailable
from penstock.log import LogReader, Position
from penstock.schema.catalog import Catalog
from penstock.sources.load import TableLoad
from penstock.sources.position import SourcePosition
from penstock.sources.settings import LoadScope
from penstock.state import StateReader


@dataclass(frozen=True, slots=True)
class FlowFacts:
    """`tables`: names of those that the log knows now. `first`: the oldest entry that it still holds, `whole`: nothing was
    trimmed. `position`: where the source is read on; None where nobody has begun to."""

    tables: frozenset[str]
    loads: dict[tuple[str, str], TableLoad]
    scope: LoadScope | None
    first: Position
    whole: bool
    position: SourcePosition | None = None

    def is_chosen_later(self, schema: str, table: str, scope: LoadScope) -> bool:
        """Whether the next start loads the table by itself, as `capture/load/beginning.py` decides it."""
        loaded = self.loads.get((schema, table))
        known = self.scope.matches(schema, table) if self.scope is not None else loaded is not None
        return scope.matches(schema, table) and not known and (loaded is None or loaded.done)


def read_flow(state_dir: Path) -> FlowFacts | None:
    """None where there is no log yet. Changes nothing, and works beside a run."""
    if not (state_dir / "log").is_dir():
        return None
    try:
        with closing(LogReader.open(state_dir / "log")) as reader, closing(StateReader.open(reader)) as state:
            versions = sorted((table for _, table in state.store(SCHEMA_HISTORY).items()), key=lambda one: one.version)
            return FlowFacts(
                tables=frozenset(one.name for one in Catalog(versions).tables()),
                loads={(str(key[0]), str(key[1])): load for key, load in state.store(LOAD_TABLE).items()},
                scope=state.store(LOAD_SCOPE).get(SOURCE),
                first=reader.first,
                whole=reader.complete,
                position=state.store(SOURCE_POSITION).get(SOURCE),
            )
    except Unavailable:
        return None
