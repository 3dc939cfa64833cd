"""A source that cannot be asked is told, and is no success."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.cli.verify import exit_code
from penstock.encode import FORMATS
from penstock.errors import Unavailable
from penstock.operations.verify import source_comparison
from penstock.operations.verify.lineage import Lineage
from penstock.operations.verify.report import EXAMPLES_MAX, SinkReport, VerifyReport
from penstock.operations.verify.source_truth import ServerTruth, inserts
from penstock.rules.rules import Rules
from penstock.schema.ddl import table_from_show_create
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError
from tests.support.waiting import LIMIT_SECONDS
from tools.components.mariadb import MariaDbServer

_ROWS, _CHUNK = 500_000, 10_000  # so many that Arrow compares them on several threads
_MISSING = range(0, _ROWS, _ROWS // 10)


def table() -> Any:
    return table_from_show_create("CREATE TABLE t (id int primary key)", "unseen", 1)


@pytest.mark.parametrize("error", [SourceError("cannot read unseen.t", hint="GRANT it"), Unavailable("no answer")])
def test_a_source_that_cannot_be_asked_is_told(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Truth:
        had_rows = False

        def __enter__(self) -> Truth:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def chunks(self, _table: object) -> Any:
            raise error

    monkeypatch.setattr(source_comparison, "source_truth", lambda _config: Truth())
    report = SinkReport("lake")
    tables: Any = SimpleNamespace(comparisons={("unseen", "t"): None}, rows=lambda _key: [])
    replay: Any = SimpleNamespace(
        latest={("unseen", "t"): table()},
        lineage=Lineage(),
        parked={},
        loads={},
        rules=Rules(),
        changed_since=lambda _key, _table: None,
        names_at_sink=lambda name: [(name, bytes(24), b"")],
    )
    config: Any = SimpleNamespace(state_dir=tmp_path)
    source_comparison.compare_with_source(config, FORMATS["parquet"], tables, replay, report)
    assert report.equal, "nothing is known to be different"
    assert str(error) in report.notes[0]
    assert exit_code(VerifyReport([report])) == 3
    assert VerifyReport([report]).to_json()["sinks"][0]["source_error"] == str(error)


@pytest.mark.parametrize("went_on", [False, True])
def test_a_source_that_went_on_is_no_fault(went_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Truth(nullcontext[None]):
        position = None
        had_rows = False

        def chunks(self, one: Any) -> Any:
            for begin in range(0, _ROWS, _CHUNK):
                yield inserts(one, [pa.array(range(begin, begin + _CHUNK), pa.int32())])

    monkeypatch.setattr(source_comparison, "source_truth", lambda _config: Truth())
    report = SinkReport("lake")
    there = np.delete(np.arange(_ROWS, dtype=np.int32), _MISSING)
    at_sink = pa.table({"_op": np.full(len(there), "I", "<U1"), "id": there})
    tables: Any = SimpleNamespace(comparisons={("unseen", "t"): None}, rows=lambda _key: [at_sink])
    replay: Any = SimpleNamespace(
        latest={("unseen", "t"): table()},
        lineage=Lineage(),
        parked={},
        loads={},
        rules=Rules(),
        lacks=lambda _position: went_on,
        changed_since=lambda _key, _table: None,
        names_at_sink=lambda name: [(name, bytes(24), b"")],
        rows_from=lambda _key: b"",
    )
    config: Any = SimpleNamespace(state_dir=tmp_path)
    source_comparison.compare_with_source(config, FORMATS["parquet"], tables, replay, report)
    assert exit_code(VerifyReport([report])) == (7 if went_on else 1)
    assert report.source_equal == 0 and report.compared_with_source == 1
    if went_on:
        assert "the source has changes that were not in the log" in report.held[0]
    else:
        assert report.faults == [
            f"unseen.t: {len(there):,} rows at the sink, {_ROWS:,} at the source; 10 missing, 0 too many, 0 different",
            *(f"unseen.t: id = {key} is not at the sink" for key in _MISSING[:EXAMPLES_MAX]),
        ], "the same keys whenever it is asked"


def test_ctrl_c_does_not_wait_for_the_whole_table_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Event()
    given = 0

    class Truth(nullcontext[None]):
        had_rows = False

        def chunks(self, one: Any) -> Any:
            nonlocal given
            for given in range(5_000):
                begun.set()
                yield inserts(one, [pa.array([given], pa.int32())])

    def interrupted(_key: object) -> Any:
        assert begun.wait(LIMIT_SECONDS)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(source_comparison, "source_truth", lambda _config: Truth())
    replay: Any = SimpleNamespace(
        latest={("unseen", "t"): table()},
        lineage=Lineage(),
        parked={},
        loads={},
        rules=Rules(),
        changed_since=lambda _key, _table: None,
        names_at_sink=lambda name: [(name, bytes(24), b"")],
        rows_from=lambda _key: b"",
    )
    tables: Any = SimpleNamespace(comparisons={("unseen", "t"): None}, rows=interrupted)
    config: Any = SimpleNamespace(state_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        source_comparison.compare_with_source(config, FORMATS["parquet"], tables, replay, SinkReport("lake"))
    assert given < 4_999


@pytest.mark.mariadb
def test_a_user_without_select(mariadb_server: MariaDbServer) -> None:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS unseen")
        cursor.execute("CREATE OR REPLACE TABLE unseen.t (id int primary key)")
        cursor.execute("CREATE OR REPLACE USER blind@'%' IDENTIFIED BY 'blind-password'")
    settings = ServerSettings(
        type="mariadb",
        port=mariadb_server.port,
        user="blind",
        password="blind-password",  # type: ignore[arg-type]
    )
    with (
        ServerTruth(settings) as truth,
        pytest.raises(SourceError, match=r"cannot read unseen\.t: SELECT command denied") as caught,
    ):
        next(truth.chunks(table()))
    assert "GRANT SELECT ON `unseen`.`t`" in caught.value.hint
    assert "--no-source" in caught.value.hint
