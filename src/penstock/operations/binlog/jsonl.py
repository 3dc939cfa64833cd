"""Groups of transactions → JSON lines, in the order of the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from penstock.binlog.bodies import parse_query
from penstock.binlog.errors import BadEvent
from penstock.capture.transactions.frame_content import Ending, Told
from penstock.capture.transactions.kernel import logged_statements
from penstock.encode.change_lines.encoder import ChangeLines, Lines
from penstock.encode.change_lines.interleave import interleaved
from penstock.encode.text import Bytes
from penstock.entries.decode import EntryGroup, GroupRows, TableRows
from penstock.entries.format import gtid_text
from penstock.files import Buffer
from penstock.operations.binlog.group_origins import GroupOrigins, distinct, events_before, in_file
from penstock.operations.binlog.reading import Seen
from penstock.operations.binlog.told_lines import incomplete_line, statement_line, told_line

BATCH_BYTES = 8 << 20  # of columns at a time: they are still in the processor's cache when they become text
_BATCH_BYTES_MIN = 1 << 18
_TABLES_MAX = 4096  # encoders that are kept


class JsonLines:
    """Writes lines to `write`. With `wanted`, what stands between the rows of other tables is left out."""

    def __init__(self, write: Callable[[Buffer], object], wanted: Callable[[str, str], bool] | None = None) -> None:
        self._write = write
        self._wanted = wanted
        self._encoders: dict[tuple[str, str, int], ChangeLines] = {}

    def tell(self, seen: Seen) -> None:
        self._write(told_line(seen, self._wanted))

    def end_early(self, why: str) -> None:
        self._write(incomplete_line(why))

    def write(self, group: EntryGroup) -> None:
        """All lines of the group. Where an event cannot be decoded, those of the transactions before its own."""
        written = 0
        try:
            for block in self._lines(group, None):
                self._write(block.data)
                written += len(block)
        except BadEvent as error:
            before = events_before(group, error)
            if before:  # the same lines again, up to there, less those that were written
                for block in self._lines(group, before):
                    self._write(block[min(written, len(block)) :].data)
                    written = max(0, written - len(block))
            raise in_file(error) from None

    def _lines(self, group: EntryGroup, events_max: int | None) -> Iterator[Bytes]:
        rows = group.rows(events_max)
        if rows is None:
            return
        origins = GroupOrigins(group, rows)
        share = max(_BATCH_BYTES_MIN, BATCH_BYTES // max(1, len(rows.tables)))
        tables = [self._table(rows, one, origins, share) for one in rows.tables]
        statements = group_statements(group, rows) if self._wanted is None else None
        if statements is not None:
            tables.append(iter([statements]))
        if tables:
            yield from interleaved(tables)

    def _table(self, rows: GroupRows, one: TableRows, origins: GroupOrigins, bytes_max: int) -> Iterator[Lines]:
        encoder = self._encoder(one)
        for part in rows.decode(one, bytes_max):
            events, origin_of = distinct(part.event)
            yield from encoder.encode(part, origins.of(events).texts(), origin_of)

    def _encoder(self, one: TableRows) -> ChangeLines:
        key = (one.table.schema, one.table.table, one.table.version)
        if key not in self._encoders:
            if len(self._encoders) >= _TABLES_MAX:
                self._encoders.clear()
            self._encoders[key] = ChangeLines(one.table)
        return self._encoders[key]


def group_statements(group: EntryGroup, rows: GroupRows) -> Lines | None:
    """Lines of statements that were logged as text inside transactions; rare."""
    events = rows.events
    found = np.empty(len(events), np.bool_)
    logged_statements(rows.buffer, events.offset, events.size, events.type, rows.fde.trailer_bytes, found)
    which = np.flatnonzero(found)
    if not len(which):
        return None
    records = np.concatenate([parsed.transactions for _, parsed in group.entries])
    headers = [parsed.header for _, parsed in group.entries for _ in range(len(parsed.transactions))]
    texts = []
    for i in which.tolist():
        transaction = int(rows.origins.transaction[i])
        record, header = records[transaction], headers[transaction]
        start = int(events.offset[i])
        query = parse_query(rows.buffer[start : start + int(events.size[i])].tobytes(), rows.fde)
        tag = header.tags[int(record["tag"]) - 1] if record["tag"] else ""
        gtid = gtid_text(header.flavour, bytes(record["gtid"]), tag)
        file = header.files[int(record["file"])]
        told = Told(Ending.STATEMENT, file, int(record["start_pos"]), gtid, int(events.timestamp[i]), query=query)
        texts.append(statement_line(told))
    ends = np.cumsum([len(text) for text in texts])
    data = np.frombuffer(b"".join(texts), np.uint8)
    return Lines(which, np.zeros(len(which), np.uint32), ends, data)
