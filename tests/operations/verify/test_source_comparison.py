"""A source that cannot be asked is told, and is no success."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cli.verify import exit_code
from penstock.encode import FORMATS
from penstock.errors import Unavailable
from penstock.operations.verify import source_comparison
from penstock.operations.verify.lineage import Lineage
from penstock.operations.verify.report import SinkReport, VerifyReport
from penstock.operations.verify.source_truth import ServerTruth
from penstock.rules.rules import Rules
from penstock.schema.ddl import table_from_show_create
from penstock.sources.settings import ServerSettings
from penstock.sources.source import SourceError
from tools.components.mariadb import MariaDbServer


def table() -> Any:
    return table_from_show_create("CREATE TABLE t (id int primary key)", "unseen", 1)


@pytest.mark.parametrize("error", [SourceError("cannot read unseen.t", hint="GRANT it"), Unavailable("no answer")])
def test_a_source_that_cannot_be_asked_is_told(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    class Truth:
        def __enter__(self) -> Truth:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def rows(self, _table: object) -> Any:
            raise error

    monkeypatch.setattr(source_comparison, "source_truth", lambda _config: Truth())
    report = SinkReport("lake", tables_count=1)
    tables: Any = SimpleNamespace(comparisons={("unseen", "t"): None}, kept=lambda _key: [])
    replay: Any = SimpleNamespace(latest={("unseen", "t"): table()}, lineage=Lineage(), rules=Rules())
    source_comparison.compare_with_source(None, FORMATS["parquet"], tables, replay, report)  # type: ignore[arg-type]
    assert report.equal, "nothing is known to be different"
    assert str(error) in report.notes[0]
    assert exit_code(VerifyReport([report])) == 3
    assert VerifyReport([report]).to_json()["sinks"][0]["source_error"] == str(error)


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
        truth.rows(table())
    assert "GRANT SELECT ON `unseen`.`t`" in caught.value.hint
    assert "--no-source" in caught.value.hint
