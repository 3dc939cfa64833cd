"""Every DDL of the public binlogs is understood, and what it makes fits the table maps that follow."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from penstock.binlog.bodies import FormatDescription, parse_format_description, parse_mariadb_gtid, parse_query
from penstock.binlog.events import split_events
from penstock.binlog.table_map import parse_table_map
from penstock.binlog.types import EventType
from penstock.errors import NotSupported, PenstockError
from penstock.schema.catalog import Catalog
from penstock.schema.ddl import Statement, apply_ddl, is_ddl
from penstock.schema.from_table_map import complete_table_map
from penstock.schema.model import SchemaDrift
from tests.support.components import NEEDS_CORPUS

pytestmark = NEEDS_CORPUS

_PARKED = {"create table t.sv(a int) with system versioning"}
_DRIFTS = {"rpl_unfiltered_hidden_gcol.000001"}  # MySQL logged a hidden column of an index here: a bug of its own


class _File:
    def __init__(self, path: Path, counts: Counter[str]) -> None:
        self.path = path
        self.counts = counts
        self.catalog = Catalog()
        self.fde: FormatDescription | None = None
        self.passes = False

    def take(self, kind: int, event: bytes) -> None:
        if kind == EventType.FORMAT_DESCRIPTION:
            self.fde = parse_format_description(event)
        elif self.fde is None:
            return
        elif kind == EventType.MARIADB_GTID:
            self.passes = parse_mariadb_gtid(event, self.fde).alter_without_effect
        elif kind == EventType.QUERY and not self.passes:
            self._statement(event, self.fde)
        elif kind == EventType.TABLE_MAP:
            self._table_map(event, self.fde)

    def _statement(self, event: bytes, fde: FormatDescription) -> None:
        query = parse_query(event, fde)
        if not is_ddl(query.sql):
            return
        self.counts["statements"] += 1
        for made in apply_ddl(Statement.of(query), self.catalog, 1):
            assert not made.parked or query.sql in _PARKED, (self.path.name, query.sql, made.reason)
            self.counts[made.kind] += 1
            self.catalog.take(made)

    def _table_map(self, event: bytes, fde: FormatDescription) -> None:
        table_map = parse_table_map(event, fde)
        known = self.catalog.find(table_map.schema, table_map.table)
        if known is None or not known.columns:
            return
        try:
            complete_table_map(table_map, known)
        except NotSupported:
            return
        except SchemaDrift:
            assert self.path.name in _DRIFTS
        self.counts["table maps"] += 1


def test_every_ddl_of_the_corpus(corpus_dir: Path) -> None:
    counts: Counter[str] = Counter()
    for path in sorted(path for path in corpus_dir.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if data[:4] != b"\xfebin":
            continue
        file = _File(path, counts)
        try:
            events = split_events(data, start=4)
            for offset, size, kind in zip(
                events.offset.tolist(), events.size.tolist(), events.type.tolist(), strict=True
            ):
                file.take(kind, data[offset : offset + size])
        except PenstockError as error:  # files that are damaged on purpose
            assert not isinstance(error, SchemaDrift), path
    assert counts["statements"] > 300 and counts["table maps"] > 2000
    assert all(counts[kind] for kind in ("create", "alter", "rename", "drop", "truncate", "create-database"))
