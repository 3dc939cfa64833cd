"""A group of entries that are decoded together: where each row event of it is, by table, and where in the log it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.binlog.bodies import FormatDescription, parse_format_description
from penstock.binlog.errors import BadEvent
from penstock.binlog.events import Events, split_events
from penstock.binlog.rows import BATCH_BYTES_MAX, DecodedRows, count_rows, decode_rows, group_rows
from penstock.binlog.table_map import TableMap, parse_table_map
from penstock.entries.format import EntryHeader, Kind, ParsedEntry
from penstock.entries.merge import in_log_order
from penstock.errors import BadInput, NotSupported, PenstockError
from penstock.log.position import Position, Seq
from penstock.schema.from_table_map import complete_table_map
from penstock.schema.model import DdlType, TableSchema
from penstock.schema.parking import ROWS_UNREADABLE
from penstock.schema.view import SchemaView

GROUP_BYTES_MAX = 32 << 20  # of events that are decoded together

Wanted = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class Origins:
    """For each event of a group: its entry, its ordinal in the entry, and its transaction: index and commit_ts."""

    ledger: npt.NDArray[np.uint64]
    entry: npt.NDArray[np.uint64]
    ordinal: npt.NDArray[np.uint32]
    commit_ts: npt.NDArray[np.uint64]
    transaction: npt.NDArray[np.int64]  # among the records of all entries, one after the other

    def seq(self, event: int) -> bytes:
        """The seq of an event's first row."""
        return Seq(int(self.ledger[event]), int(self.entry[event]), int(self.ordinal[event]), 0).to_bytes()


class _Layout(NamedTuple):
    """The row events of a group that have the same table map."""

    table_map: TableMap
    events: npt.NDArray[np.int64]


class TableRows(NamedTuple):
    """The row events of one table version."""

    table: TableSchema
    layouts: list[_Layout]

    @property
    def first_event(self) -> int:
        return min(int(layout.events[0]) for layout in self.layouts)

    @property
    def events(self) -> npt.NDArray[np.int64]:
        """Those of all layouts, in the order of the log."""
        return np.sort(np.concatenate([layout.events for layout in self.layouts]))

    def before(self, event: int) -> TableRows:
        """The same without the rows of this event and later ones."""
        some = ((layout, layout.events[layout.events < event]) for layout in self.layouts)
        return self._replace(layouts=[layout._replace(events=events) for layout, events in some if len(events)])


@dataclass(frozen=True, slots=True)
class GroupRows:
    """The events of a group in one buffer, and its rows by table version, in the order of their first row event.

    `held`: parked tables, with their first row event.
    """

    buffer: npt.NDArray[np.uint8]
    events: Events
    fde: FormatDescription
    origins: Origins
    tables: list[TableRows]
    held: dict[str, tuple[TableSchema, int]]
    located: Callable[[BadEvent], BadEvent]

    def decode(self, one: TableRows, bytes_max: int | None = None) -> Iterator[DecodedRows]:
        """All rows of a table version in order, in batches of about `bytes_max` of columns."""
        share = (bytes_max or BATCH_BYTES_MAX) // len(one.layouts)
        try:
            yield from in_log_order(
                [
                    decode_rows(self.buffer, self.events, layout.events, layout.table_map, self.fde, share)
                    for layout in one.layouts
                ]
            )
        except BadEvent as error:
            raise self.located(error) from None
        except (NotSupported, BadInput) as error:  # of a column: none of the table's rows can be read
            found = BadEvent(error.message, offset=int(self.events.offset[one.first_event]), hint=error.hint)
            raise self.located(found) from error

    def counts(self, one: TableRows) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """(events, how many rows each has) for each layout of a table version."""
        try:
            for layout in one.layouts:
                yield layout.events, count_rows(self.buffer, self.events, layout.events, layout.table_map, self.fde)
        except BadEvent as error:
            raise self.located(error) from None


class EntryGroup:
    """Entries that are decoded together: of one format description, without a schema change between them. `parks`: as
    `decode_entries`."""

    def __init__(self, schemas: SchemaView, wanted: Wanted, *, parks: bool = False) -> None:
        self.parks = parks
        self._schemas = schemas
        self._wanted = wanted
        self._entries: list[tuple[Position, ParsedEntry]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def takes(self, parsed: ParsedEntry) -> bool:
        if not self._entries:
            return True
        return self._bytes + len(parsed.events) <= GROUP_BYTES_MAX and _same_format(
            self._entries[0][1].header, parsed.header
        )

    def add(self, position: Position, parsed: ParsedEntry) -> None:
        self._entries.append((position, parsed))
        self._bytes += len(parsed.events)

    @property
    def entries(self) -> list[tuple[Position, ParsedEntry]]:
        return self._entries

    def rows(self, events_max: int | None = None) -> GroupRows | None:
        """What there is to decode; None without an event. `events_max`: only the rows of so many events."""
        if not self._bytes:
            return None
        header = self._entries[0][1].header
        fde = replace(parse_format_description(header.fde), checksum=int(header.checksum))
        buffer = self._entries[0][1].events
        if len(self._entries) > 1:
            buffer = np.concatenate([parsed.events for _, parsed in self._entries])
        events = split_events(buffer)
        if events_max is not None:
            events = events.some(slice(0, events_max))
        scope, origins, counts = self._origins(events)

        def located(error: BadEvent) -> BadEvent:
            return self._located(error, events, scope)

        try:
            layout = group_rows(buffer, events, fde, scope)
        except BadEvent as error:
            raise located(error) from None
        layout.layout[~counts] = -1
        tables: dict[tuple[str, str, int], TableRows] = {}
        held: dict[str, tuple[TableSchema, int]] = {}
        for map_event, chosen in layout.groups():
            found = self._layout(buffer, events, fde, map_event, chosen, scope)
            if found is not None:
                if found[1] is None:
                    first = min(int(chosen[0]), held.get(found[0].name, (found[0], int(chosen[0])))[1])
                    held[found[0].name] = (found[0], first)
                    continue
                table = found[0]  # one table may have two versions here: a drifted schema gets a new one without a DDL
                key = (table.schema, table.table, table.version)
                tables.setdefault(key, TableRows(table, [])).layouts.append(found[1])
        return GroupRows(buffer, events, fde, origins, list(tables.values()), held, located)

    def _layout(  # noqa: PLR0917
        self,
        buffer: npt.NDArray[np.uint8],
        events: Events,
        fde: FormatDescription,
        map_event: int,
        chosen: npt.NDArray[np.int64],
        scope: npt.NDArray[np.int64],
    ) -> tuple[TableSchema, _Layout | None] | None:
        """The table and layout of some row events: None for rows that nobody wants, no layout for a parked table."""
        start = int(events.offset[map_event])
        table_map = parse_table_map(buffer[start : start + int(events.size[map_event])].tobytes(), fde)
        if not self._wanted(table_map.schema, table_map.table):
            return None
        position = self._entries[int(scope[chosen[0]])][0]
        if not self._schemas.knew(table_map.schema, table_map.table, position):
            # Nobody followed the table then: capture records a version before the first row of a table that it follows.
            knew = [self._schemas.knew(table_map.schema, table_map.table, each) for each, _ in self._entries]
            chosen = chosen[np.array(knew)[scope[chosen]]]
            if not len(chosen):
                return None
            position = self._entries[int(scope[chosen[0]])][0]
        known = self._schemas.find(table_map.schema, table_map.table, position)
        if known is not None and known.is_sequence:
            return None
        if known is not None and known.parked:
            return known, None
        table = self._schemas.at(table_map.schema, table_map.table, position)
        try:
            return table, _Layout(complete_table_map(table_map, table), chosen)
        except BadInput as error:
            if not self.parks:
                raise
            return unreadable(table, error), None

    def _located(self, error: BadEvent, events: Events, scope: npt.NDArray[np.int64]) -> BadEvent:
        """The same error, with the place in the source instead of the one in the group's buffer."""
        event = int(np.searchsorted(events.offset, error.offset, side="right")) - 1
        position, parsed = self._entries[int(scope[event])]
        start = int(events.offset[np.searchsorted(scope, scope[event])])
        transactions = parsed.transactions
        within = error.offset - start
        at = transactions[max(0, int(np.searchsorted(transactions["offset"], within, side="right")) - 1)]
        file = parsed.header.files[int(at["file"])] if parsed.header.files else ""
        offset = int(at["start_pos"]) + within - int(at["offset"])
        found = error.at(offset, file=f"log entry {position}, transaction at {file}:{int(at['start_pos'])}")
        found.index, found.transaction = event, (file, int(at["start_pos"]))
        return found

    def _origins(self, events: Events) -> tuple[npt.NDArray[np.int64], Origins, npt.NDArray[np.bool_]]:
        """For each event: the index of its entry, its origin, and whether its rows count."""
        starts = np.cumsum([0, *(len(parsed.events) for _, parsed in self._entries)])
        inner = starts[1:-1][starts[1:-1] < starts[-1]]
        inner = inner[inner <= events.offset[-1]] if len(events) else inner[:0]
        if not np.array_equal(events.offset[np.searchsorted(events.offset, inner)], inner):
            raise BadInput(f"the events of an entry after {self._entries[0][0]} do not end where the entry does")
        scope = np.searchsorted(starts, events.offset, side="right") - 1
        positions = np.array([position for position, _ in self._entries], np.uint64)
        first = np.searchsorted(events.offset, starts[:-1])
        offsets = np.concatenate(
            [parsed.transactions["offset"] + start for start, (_, parsed) in zip(starts, self._entries, strict=False)]
        )
        ends = offsets + np.concatenate([parsed.transactions["length"] for _, parsed in self._entries])
        commit_ts = np.concatenate([parsed.transactions["commit_ts"] for _, parsed in self._entries])
        kinds = np.concatenate([parsed.transactions["kind"] for _, parsed in self._entries])
        if not len(offsets):
            raise BadInput(f"entry {self._entries[0][0]} has events, but no transaction")
        transaction = np.searchsorted(offsets, events.offset, side="right") - 1
        if np.any(transaction < 0) or np.any(events.offset >= ends[transaction]):
            raise BadInput(f"entry {self._entries[0][0]} or one after it has events outside its transactions")
        counts = np.isin(kinds, (Kind.ROWS, Kind.DDL))[transaction]
        origins = Origins(
            positions[scope, 0],
            positions[scope, 1],
            (np.arange(len(events)) - first[scope]).astype(np.uint32),
            commit_ts[transaction],
            transaction,
        )
        return scope, origins, counts


def _same_format(a: EntryHeader, b: EntryHeader) -> bool:
    return a.fde == b.fde and a.checksum == b.checksum and a.flavour == b.flavour


def unreadable(table: TableSchema, error: PenstockError) -> TableSchema:
    """The table from where its rows cannot be read."""
    return replace(table, ddl_type=DdlType.UNKNOWN, query="", other="", reason=f"{ROWS_UNREADABLE}{error.message}")
