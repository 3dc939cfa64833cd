"""Real MariaDB binlogs through the real cutter, killed inside: the log holds each transaction once, in order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from penstock.binlog.events import split_events
from penstock.binlog.types import EventType
from tests.capture.fake_log import FakeLog, FileSource, captured
from tests.support import components
from tests.support.budget import scaled

CORPUS = components.CORPUS / "mariadb-10.11"

pytestmark = components.NEEDS_CORPUS

SCENARIOS = [
    "fk_cascade",
    "log_bin_compress",
    "maria_gtid_domains_two_phase_alter",
    "metadata_full",
    "numeric",
    "rows_query",
    "transactions_ddl",
]


@pytest.mark.parametrize("bytes_max", [1200, 1 << 20])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_inside_a_real_binlog(scenario: str, bytes_max: int) -> None:
    data = (CORPUS / f"{scenario}.binlog").read_bytes()
    whole = captured(data, bytes_max=bytes_max)
    expected = whole.committed()
    assert expected and whole.frames[-1].open is None
    count = len(FileSource(data))
    stride = max(1, count // scaled(25))
    for stop in [*range(1, min(12, count)), *range(12, count, stride)]:
        log = FakeLog()
        log.run(FileSource(data, 7, stop), bytes_max=bytes_max)  # type: ignore[arg-type]
        log.run(FileSource(data, 1, min(stop + 3, count)), bytes_max=bytes_max)  # type: ignore[arg-type]
        log.run(FileSource(data), bytes_max=bytes_max)  # type: ignore[arg-type]
        assert log.committed() == expected, stop
        assert log.frames[-1].open is None
        assert log.frames[-1].position.order == whole.frames[-1].position.order


def test_a_binlog_without_the_statements_that_made_its_tables() -> None:
    """What a file begins with after a purge: its tables come from its own metadata. It ended with "the source went back"."""
    data = (CORPUS / "metadata_full.binlog").read_bytes()
    events = split_events(np.frombuffer(data, np.uint8), start=4)
    raw = [data[at : at + size] for at, size in zip(events.offset.tolist(), events.size.tolist(), strict=True)]
    kinds = events.type.tolist()
    made = [
        number
        for number, pair in enumerate(itertools.pairwise(kinds))
        if pair == (EventType.MARIADB_GTID, EventType.QUERY)
    ]
    left = [event for number, event in enumerate(raw) if number not in made and number - 1 not in made]
    assert 0 < len(left) < len(raw)
    log = captured(data[:4] + b"".join(left), bytes_max=1 << 20)
    rows = [event for transaction in captured(data, bytes_max=1 << 20).committed() for event in transaction]
    assert [event for transaction in log.committed() for event in transaction] == [
        event for event in rows if event in left
    ]
    orders = [frame.position.order for frame in log.frames]
    assert orders == sorted(orders)
    assert log.schemas
    assert not any(table.parked for table in log.schemas)
