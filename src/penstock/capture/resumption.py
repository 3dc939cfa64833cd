"""Resuming parked tables, on the side of the log's writer.

Whoever resumes a table (`penstock.operations.resume`) has read the log up to `seen`: it knows which versions are parked
and what shall stand for them, and has read the rows that were held back with these. Here what came since is looked at,
and then one frame makes all of it durable. Nothing is changed if that is refused.

A repetition is accepted: whoever was killed before the answer came may ask again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.capture.held import LogHeldGroups
from penstock.capture.recorder import Recorder
from penstock.capture.schemas import SchemaTracker
from penstock.entries.decode import check_held, decode_entries
from penstock.entries.stores import SCHEMA_HISTORY, SCHEMA_RESUMED
from penstock.errors import BadInput, PenstockError, Unavailable
from penstock.log import Log
from penstock.log.position import Position
from penstock.schema.model import TableSchema
from penstock.schema.view import SchemaView
from penstock.sources.settings import Tables
from penstock.state import BucketState, StateSettings

REQUEST = "resume"


@dataclass(frozen=True, slots=True)
class Resumption:
    """`versions`: what stands for the parked versions of the same keys. `latest`: the version of each of their tables that
    was in force at `seen`, the last entry that was looked at; 0 if there was none."""

    versions: tuple[TableSchema, ...]
    latest: Mapping[tuple[str, str], int]
    seen: Position

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": [table.to_json() for table in self.versions],
            "latest": [[*name, version] for name, version in self.latest.items()],
            "seen": str(self.seen),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Resumption:
        try:
            return cls(
                tuple(TableSchema.from_json(text) for text in value["versions"]),
                {(str(schema), str(table)): int(version) for schema, table, version in value["latest"]},
                Position.parse(str(value["seen"])),
            )
        except (KeyError, TypeError, ValueError, json.JSONDecodeError) as error:
            raise BadInput(f"a request to resume cannot be read: {error!r}") from error


def resume(resumption: Resumption, log: Log, state: BucketState, recorder: Recorder, schemas: SchemaTracker) -> None:
    """Returns once it is durable. Raises `Unavailable` if the tables changed since `seen`, `BadInput` if what was held back
    since does not fit. Only for the owner of the log, between transactions."""
    done = state.store(SCHEMA_RESUMED)
    wanted = [table for table in resumption.versions if done.get(table.key) != table]
    if not wanted:
        return
    recorder.finish()
    for table in wanted:
        if not table.columns:
            raise BadInput(f"{table.name}: a definition without columns")
        if not schemas.is_parked(table.key):
            raise Unavailable(f"{table.name} was resumed by somebody else just now", hint="look at `penstock status`")
    for name, version in resumption.latest.items():
        found = schemas.in_force(*name)
        if (found.version if found else 0) != version:
            raise Unavailable(
                f"{'.'.join(name)} was changed at the source just now: {found.query[:120] if found else 'it is gone'!r}",
                hint="nothing was changed here; try again",
            )
    _check_rows(wanted, log, resumption.seen, schemas, recorder.groups)
    recorder.resume(wanted)


def resume_stopped(
    resumption: Resumption, log: Log, tables: Tables, state_settings: StateSettings | None = None
) -> None:
    """`resume` for whoever owns the log while no capture runs."""
    state = BucketState.open(log, state_settings)
    schemas = followed_schemas(state, tables)
    recorder = Recorder(log, state, schemas)
    if recorder.open is not None:
        raise Unavailable(
            "a transaction is only partly in the log, and no table can be resumed inside it",
            hint="start the flow (penstock run), and resume the table while it runs",
        )
    resume(resumption, log, state, recorder, schemas)


def followed_schemas(state: BucketState, tables: Tables | None) -> SchemaTracker:
    """The tables in force where the log ends."""
    history = [table for _, table in state.store(SCHEMA_HISTORY).items()]
    resumptions = {table.key: table for _, table in state.store(SCHEMA_RESUMED).items()}
    return SchemaTracker(tables, history, resumptions)


def _check_rows(
    versions: list[TableSchema], log: Log, seen: Position, schemas: SchemaTracker, groups: LogHeldGroups
) -> None:
    """Reads the rows that came after `seen`, and those of XA groups that may still commit, as whoever delivers them will.
    Raises `BadInput` if they do not fit."""
    in_force = {}
    for table in versions:
        found = schemas.in_force(table.schema, table.table)
        if found is not None and found.key == table.key:
            in_force[table.schema, table.table] = table
    if not in_force:
        return
    view = SchemaView((Position(0, number), table) for number, table in enumerate(in_force.values()))

    def wanted(schema: str, table: str) -> bool:
        return (schema, table) in in_force

    try:
        if seen < log.end():
            entries = (entry for entry in log.read(seen, log.end()) if entry.position > seen)
            for _ in decode_entries(entries, view, wanted):
                pass
        for group in groups.groups():
            for entry in groups.read(group) if group.entries else ():
                check_held(entry, view, wanted)
    except PenstockError as error:
        raise does_not_fit(error) from error


def does_not_fit(error: PenstockError) -> BadInput:
    return BadInput(
        f"the definition does not fit the rows that were held back: {error.message}",
        hint="nothing was changed; give the table as it was right after the statement that parked it: `penstock resume` "
        "with --schema FILE",
    )
