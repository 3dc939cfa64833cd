"""A place of the source up to which a sink has everything, with all that a new log needs to begin there
(docs/formats/progress-object.md).

Everything of a point is of one moment, the state of the log at one position: so that position, and the commit_ts of it, tell of
every row at the sink whether it is of before that place.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.entries.stores import (
    LOAD_SCOPE,
    LOAD_TABLE,
    SCHEMA_HISTORY,
    SCHEMA_RESUMED,
    SOURCE,
    SOURCE_HELD,
    SOURCE_OPEN,
    SOURCE_POSITION,
)
from penstock.errors import Corruption
from penstock.log import LogReader
from penstock.log.position import Position
from penstock.rules.versions import RowSettings, SettingsVersion
from penstock.schema.model import ChangeKind, DdlType, TableSchema
from penstock.schema.parking import resumed
from penstock.sources.load import Name, TableLoad
from penstock.sources.position import SourcePosition
from penstock.sources.settings import LoadScope
from penstock.state import StateLost, StateReader

_NUMBERS_END = 1 << 63


@dataclass(frozen=True, slots=True)
class RecoveryPoint:
    """Everything before `position` is at the sink. A row there is of before it exactly if its entry is at or before
    `log_position`, and then its commit_ts is at most `commit_ts`: both grow on in a log that takes the place of a lost one."""

    commit_ts: int
    position: SourcePosition
    log_uuid: str
    log_position: Position
    log_end: Position
    settings: RowSettings
    settings_versions: int = 1
    loads: Mapping[Name, TableLoad] = field(default_factory=dict)
    scope: LoadScope | None = None
    schemas: str = ""  # tells the tables there apart from others: the digest of `schemas_text`

    def to_json(self) -> dict[str, Any]:
        return {
            "commit_ts": self.commit_ts,
            "position": asdict(self.position),
            "log_uuid": self.log_uuid,
            "log_position": str(self.log_position),
            "log_end": str(self.log_end),
            "settings": self.settings.to_json(),
            "settings_versions": self.settings_versions,
            "loads": {".".join(name): json.loads(load.to_json()) for name, load in self.loads.items()},
            "scope": json.loads(self.scope.to_json()) if self.scope is not None else None,
            "schemas": self.schemas,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> RecoveryPoint:
        """Raises `Corruption` where `value` is not what `to_json` makes."""
        try:
            loads = {}
            for name, load in value["loads"].items():
                schema, _, table = name.partition(".")
                loads[schema, table] = TableLoad.from_json(json.dumps(load))
            position = SourcePosition(**value["position"])
            _check_numbers(value["commit_ts"], position.commit_ts, position.pos)
            if not isinstance(position.file, str) or not isinstance(position.gtid, str):
                raise ValueError("its position names no file, or no GTIDs")
            return cls(
                value["commit_ts"],
                position,
                str(value["log_uuid"]),
                Position.parse(value["log_position"]),
                Position.parse(value["log_end"]),
                RowSettings.from_json(value["settings"]),
                int(value["settings_versions"]),
                loads,
                LoadScope.from_json(json.dumps(value["scope"])) if value["scope"] is not None else None,
                str(value["schemas"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(f"a recovery point cannot be read: {error!r}") from error


def _check_numbers(*values: object) -> None:
    for value in values:
        if type(value) is not int or not 0 <= value < _NUMBERS_END:
            raise ValueError(f"{value!r} is no time, and no place in a file")


def schemas_digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def schemas_text(tables: Sequence[TableSchema]) -> tuple[str, str]:
    """The tables as text, and its digest."""
    text = json.dumps([json.loads(table.to_json()) for table in tables], ensure_ascii=False, separators=(",", ":"))
    return text, schemas_digest(text.encode("utf-8", "surrogatepass"))


def schemas_of(text: str | bytes, where: str) -> tuple[TableSchema, ...]:
    """Raises `Corruption` where `text` is not what `schemas_text` makes."""
    try:
        return tuple(TableSchema.from_json(json.dumps(one)) for one in json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corruption(f"{where} cannot be read: {error!r}") from error


class RecoveryPoints:
    """The points of one changefeed, from the log alone. Thread-safe; the state is followed from one call to the next."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self._state: StateReader | None = None
        self._history = b""  # tells the history of which `_text` was made
        self._text = self._digest = ""

    def at(self, mark: Position, versions: Sequence[SettingsVersion]) -> tuple[dict[str, Any], str] | None:
        """The point at `mark`, up to which the sink has everything, and the text of its schemas. None where there is none: a
        transaction or an XA group is open there, or the state of that place is not there any more."""
        with self._lock:
            if mark.entry_id < 0 or not versions:
                return None
            try:
                if self._state is None:
                    self._state = StateReader.open(self._reader, at=mark)
                self._state.advance(mark)
            except StateLost:
                return None
            if self._state.position != mark:
                return None
            return self._point(self._state, mark, versions)

    def close(self) -> None:
        with self._lock:
            if self._state is not None:
                self._state.close()
                self._state = None

    def _point(
        self, state: StateReader, mark: Position, versions: Sequence[SettingsVersion]
    ) -> tuple[dict[str, Any], str] | None:
        saved = state.store(SOURCE_POSITION).get(SOURCE)
        held = next(iter(state.store(SOURCE_HELD).items()), None)
        if saved is None or held is not None or state.store(SOURCE_OPEN).get(SOURCE) is not None:
            return None
        self._follow_schemas(state, versions[-1].settings)
        point = RecoveryPoint(
            commit_ts=saved.commit_ts,
            position=saved,
            log_uuid=str(self._reader.uuid),
            log_position=mark,
            log_end=self._reader.end(),
            settings=versions[-1].settings,
            settings_versions=len(versions),
            loads={(str(key[0]), str(key[1])): load for key, load in state.store(LOAD_TABLE).items() if not load.done},
            scope=state.store(LOAD_SCOPE).get(SOURCE),
            schemas=self._digest,
        )
        return point.to_json(), self._text

    def _follow_schemas(self, state: StateReader, settings: RowSettings) -> None:
        history, resumptions = state.store(SCHEMA_HISTORY), state.store(SCHEMA_RESUMED)
        digest = hashlib.sha256(json.dumps(settings.to_json()).encode())
        for store in (history, resumptions):
            for key, value in store.raw.iterate():
                digest.update(key)
                digest.update(value)
        if digest.digest() == self._history:
            return
        done = {table.key: table for _, table in resumptions.items()}
        newest: dict[Name, TableSchema] = {}
        drops: dict[str, TableSchema] = {}  # of databases
        for _, table in history.items():  # of each name in the order of its versions
            newest[table.schema, table.table] = resumed(table, done)
            if table.kind is ChangeKind.DROP_DATABASE:
                drops[table.schema] = table
        routes = any(rule.route is not None for rule in settings.rules)
        found = []
        for one in newest.values():
            there = _without_dropped(one, drops.get(one.schema))
            # Of several tables that are one at the sink, a table that is gone has given that its version, and rows that stay.
            if not there.dropped or (routes and there.table and settings.wants(there.schema, there.table)):
                found.append(there)
        self._text, self._digest = schemas_text(sorted(found, key=lambda one: one.version))
        self._history = digest.digest()


def _without_dropped(table: TableSchema, drop: TableSchema | None) -> TableSchema:
    """The table, or that it went with its database."""
    if drop is None or not table.table or drop.version < table.version:
        return table
    return TableSchema(table.schema, table.table, drop.version, (), drop.query, DdlType.DROP_TABLE)
