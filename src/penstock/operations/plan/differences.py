"""What a configuration changes for a flow that is there already: tables that come and go, sinks, settings.

A setting says what follows from its change, by its key. What a start would refuse is said to be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from penstock.operations.plan.chosen_tables import SourceTable
from penstock.operations.plan.flow_facts import FlowFacts
from penstock.operations.plan.model import Difference, PlannedTable
from penstock.quantities import shown_seconds, shown_size
from penstock.schema.quoting import shell_word
from penstock.sources.settings import Tables

_SIZES = ("size", "log_disk", "disk_free", "spool_disk", "spool_memory", "ledger", "in_flight", "keep_local", "part")
_TIMES = ("every", "for", "lag", "interval")
_NO_RELOAD = "no reload"
_FROM_NOW_ON = "for changes from the next start on; rows at the sink stay as they are (docs/rules.md)"
_ANOTHER_KEY = "for changes from the next start on, which refuses it until everything before it is delivered"
_REFUSED_FORMAT = "refused: all files under a url have one format; give the sink a new name and a new url"
_CONNECTION = ("host", "port", "unix_socket", "user", "password", "password_file", "tls", "server_id")


def differences(
    before: dict[str, Any],
    now: dict[str, Any],
    tables: Iterable[PlannedTable],
    at_source: Iterable[SourceTable],
    flow: FlowFacts,
) -> tuple[Difference, ...]:
    """Of the settings of the last start and those of the next. `tables`: those that are chosen now."""
    found = [
        *_tables(before, now, list(tables), {one.name for one in at_source} | flow.tables),
        *_sinks(before, now, flow),
    ]
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key) and not _of_other_sink(key, before, now):
            found.append(_setting(key, before.get(key), now.get(key)))
    return tuple(found)


def _tables(
    before: dict[str, Any], now: dict[str, Any], tables: list[PlannedTable], known: set[str]
) -> Iterator[Difference]:
    old, new = _filter(before), _filter(now)
    for one in tables:
        schema, _, name = one.table.partition(".")
        if old.matches(schema, name) and not one.load:
            continue
        rows = "its rows" if one.rows is None else f"about {one.rows:,} row{'' if one.rows == 1 else 's'}"
        if one.load:
            yield Difference(sign="+", what=one.table, effect=f"load {rows}")
        elif one.refused:
            yield Difference(sign="+", what=one.table, effect=f"refused: {one.refused}", refused=True)
        else:
            effect = f"followed from the next start on; {rows} of before: penstock backfill {shell_word(one.table)}"
            yield Difference(sign="+", what=one.table, effect=effect)
    for gone in sorted(known):
        schema, _, name = gone.partition(".")
        if old.matches(schema, name) and not new.matches(schema, name):
            yield Difference(sign="-", what=gone, effect="files stay")


def _sinks(before: dict[str, Any], now: dict[str, Any], flow: FlowFacts) -> Iterator[Difference]:
    old, new = _sink_names(before), _sink_names(now)
    since = "everything that was captured" if flow.whole else f"what the log still holds, from {flow.first} on"
    for name in sorted(new - old):
        yield Difference(sign="+", what=f"sink {name}", effect=f"gets {since}")
    for name in sorted(old - new):
        yield Difference(sign="-", what=f"sink {name}", effect="files stay; the log keeps what it has not got")


def _setting(key: str, before: Any, now: Any) -> Difference:
    effect = _effect(key)
    what = f"{key.removeprefix('sinks.')} {_written(key, before)} → {_written(key, now)}"
    return Difference(sign="~", what=what, effect=effect, refused=effect.startswith("refused"))


def _effect(key: str) -> str:
    section, _, rest = key.partition(".")
    if section == "sinks":
        rest = rest.partition(".")[2]
        first = rest.partition(".")[0]
        if first == "rules":
            return _FROM_NOW_ON
        if first in ("format", "canal_json", "csv", "debezium_json", "parquet"):
            return _REFUSED_FORMAT
        if first == "url":
            return "goes on there only if its files were moved there"
        if first == "only":
            return "a table that comes begins at the next start; files of one that goes stay"
        return _NO_RELOAD
    if section == "rules":
        return _FROM_NOW_ON
    if section == "mask_key":
        return _ANOTHER_KEY
    if section == "source":
        first = rest.partition(".")[0]
        if first == "start":
            return "the log has begun: it decides only which tables are loaded that are chosen later"
        if first == "tables":
            return "as above"
        if first == "snapshot":
            return "for the loads to come"
        if first in _CONNECTION:
            return "the server must know the log's position"
        return "at the next start"
    return _NO_RELOAD


def _of_other_sink(key: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether it is a setting of a sink that comes or goes: that is said once."""
    section, _, rest = key.partition(".")
    name = rest.partition(".")[0]
    return section == "sinks" and name not in _sink_names(before) & _sink_names(now)


def _sink_names(settings: dict[str, Any]) -> set[str]:
    return {key.split(".")[1] for key in settings if key.startswith("sinks.")}


def _filter(settings: dict[str, Any]) -> Tables:
    default = Tables()
    return Tables(
        include=tuple(settings.get("source.tables.include", default.include)),
        exclude=tuple(settings.get("source.tables.exclude", default.exclude)),
    )


def _written(key: str, value: Any) -> str:
    """As people write it: `5m`, `64MiB`."""
    last = key.rpartition(".")[2]
    if value is None:
        return "(none)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and last in _SIZES:
        return shown_size(value)
    if isinstance(value, int | float) and (
        last in _TIMES or (last.endswith(("_max", "_interval")) and isinstance(value, float))
    ):
        return shown_seconds(value)
    if isinstance(value, list):
        return (
            ", ".join(str(one) for one in value)
            if all(isinstance(one, str) for one in value)
            else f"{len(value)} of them"
        )
    return str(value)
