"""When a recovery refuses, and what it says; and what it makes of what a killed process left at the sink."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.delivery.storage.owner import OWNER_PATH
from penstock.encode import open_format
from penstock.errors import BadInput, Terminal
from penstock.files import REAL_FILES
from penstock.operations.adopt import adopt_sinks
from penstock.operations.config.loading import load
from penstock.operations.recover import recover as steps
from penstock.operations.recover import recover_from_sinks
from penstock.operations.verify.verify import verify
from penstock.supervisor.run_directory import RECOVERY_MARK, refuse_unfinished_recovery
from tests.operations.recover.test_recover import beyond, database, ids, insert, make_tables
from tests.operations.recover.world import World, server_source
from tests.operations.verify.sinks import run_statements
from tests.support.waiting import wait_until
from tools.components.database import DatabaseServer
from tools.components.mariadb import MariaDbServer

__all__ = ["database"]


def progress(world: World, sink: str = "lake") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((world.directory / sink / "_penstock/progress.json").read_text())
    return value


@pytest.fixture
def world(tmp_path: Path, mariadb_server: DatabaseServer, database: str) -> World:
    """A flow with a point, and rows of `busy` beyond it at the sink; its state directory is lost."""
    return made(tmp_path, mariadb_server, database, {"lake": {"format": "parquet"}})


def made(
    directory: Path, server: DatabaseServer, database: str, sinks: dict[str, dict[str, Any]], **more: Any
) -> World:
    make_tables(server, database)
    world = World(directory, server_source(server, database), sinks, **more)
    world.capture()
    insert(server, database, "busy", 0, 10)
    world.capture()
    world.deliver()
    insert(server, database, "quiet", 0, 3, width=1)
    insert(server, database, "busy", 10, 300)
    world.capture()
    world.deliver(flushed=False, until=beyond(world, next(iter(sinks)), f"{database}.busy", 100))
    world.lose()
    return world


def test_a_sink_without_a_point_is_refused(world: World) -> None:
    path = world.directory / "lake/_penstock/progress.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "point": None}))
    with pytest.raises(BadInput, match="no point of the source") as refused:
        recover_from_sinks(world.config)
    assert "start anew" in refused.value.hint
    path.unlink()
    with pytest.raises(BadInput, match=r"lake has no _penstock/progress\.json"):
        recover_from_sinks(world.config)
    path.write_text(json.dumps({**kept, "changefeed": "other"}))
    with pytest.raises(BadInput, match="progress of feed other"):
        recover_from_sinks(world.config)
    assert not (world.state_dir / "log").exists()


def test_a_state_directory_that_is_not_lost_is_left_alone(world: World) -> None:
    world.capture()
    (world.state_dir / "lock").touch()
    before = sorted(world.state_dir.rglob("*"))
    with pytest.raises(BadInput, match="is not lost"):
        recover_from_sinks(world.config)
    assert sorted(world.state_dir.rglob("*")) == before


def test_other_settings_are_refused_and_named(world: World) -> None:
    text = world.path.read_text().replace("sinks:\n  lake:\n", "sinks:\n  lake:\n    only: ['*.busy']\n")
    world.path.write_text(text)
    with pytest.raises(BadInput, match="made by other settings: only was"):
        recover_from_sinks(load(world.path))


def test_a_binlog_that_was_purged_is_named_and_nothing_is_skipped(tmp_path: Path, database: str) -> None:
    with MariaDbServer(tmp_path / "server") as own_mariadb:
        purged_is_named(tmp_path, own_mariadb, database)


def purged_is_named(tmp_path: Path, own_mariadb: DatabaseServer, database: str) -> None:
    world = made(tmp_path, own_mariadb, database, {"lake": {"format": "canal-json"}})
    run_statements(own_mariadb, database, ["FLUSH BINARY LOGS"])
    with contextlib.closing(own_mariadb.connect()) as connection, connection.cursor() as cursor:

        def files() -> list[str]:
            cursor.execute("SHOW BINARY LOGS")
            return [row[0] for row in cursor.fetchall()]

        newest = files()[-1]

        def purged() -> bool:  # not while a connection that has just ended still reads one
            cursor.execute("PURGE BINARY LOGS TO %s", (newest,))
            return files() == [newest]

        wait_until(purged, "the binlog to be purged")
    before = world.files("lake")
    with pytest.raises(Terminal, match="Nothing was skipped") as refused:
        recover_from_sinks(world.config)
    assert refused.value.hint
    assert world.files("lake") == before
    with pytest.raises(BadInput, match="was interrupted"):
        refuse_unfinished_recovery(world.state_dir, REAL_FILES)
    with pytest.raises(BadInput, match="was interrupted"):
        verify(world.config)  # the log is empty: it said ✓, though nothing was compared
    (world.state_dir / RECOVERY_MARK).unlink()
    for with_source in (True, False):
        (sink,) = verify(world.config, with_source=with_source).sinks
        assert sink.before_log and not sink.differences.changes
        assert any("nothing was compared" in text for text in sink.held)
        assert all("compared with the source alone" not in text for text in sink.notes)


def test_what_no_index_names_is_deleted_and_its_number_used(
    world: World, mariadb_server: DatabaseServer, database: str
) -> None:
    """A killed process had put a file, and not named it in the index."""
    last = world.directory / "lake" / [name for name in world.files("lake") if "/busy/" in name][-1]
    number = int(last.stem.removeprefix("CDC"))
    leftover = last.with_name(f"CDC{number + 1:06d}.parquet")
    leftover.write_bytes(last.read_bytes())
    assert recover_from_sinks(world.config).leftovers == {"lake": 1}
    assert not leftover.exists()
    insert(mariadb_server, database, "busy", 310, 3)
    world.capture()
    world.deliver()
    assert leftover.exists()
    assert ids(world, "lake", f"{database}.busy") == list(range(313))
    numbers = [int(Path(name).stem.removeprefix("CDC")) for name in world.files("lake") if "/busy/" in name]
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_recovery_that_was_killed_begins_again(world: World, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every step that changes something: the next one makes the same of it."""

    class Killed(BaseException): ...

    def kill(*_arguments: Any, **_options: Any) -> None:
        raise Killed

    owner = world.directory / "lake" / OWNER_PATH
    epochs = [json.loads(owner.read_text())["epoch"]]
    for step in ("_remove_made", "adopt", "_fill_log", "_match", "write_recovered"):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(steps, step, kill)
            recover_from_sinks(world.config)
        assert (world.state_dir / RECOVERY_MARK).exists(), step
        with pytest.raises(BadInput, match="was interrupted"):
            refuse_unfinished_recovery(world.state_dir, REAL_FILES)
        epochs.append(json.loads(owner.read_text())["epoch"])
    done = steps.write_recovered

    def written_then_killed(*arguments: Any, **options: Any) -> None:
        done(*arguments, **options)
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(steps, "write_recovered", written_then_killed)
        recover_from_sinks(world.config)
    recover_from_sinks(world.config)
    refuse_unfinished_recovery(world.state_dir, REAL_FILES)
    world.capture()
    world.deliver()
    assert ids(world, "lake", f"{database}.busy") == list(range(310))
    assert ids(world, "lake", f"{database}.quiet") == [0, 1, 2]
    assert epochs == sorted(epochs) and json.loads(owner.read_text())["epoch"] > epochs[-1]


def test_a_statement_that_the_sink_has_is_not_told_again(
    tmp_path: Path, mariadb_server: DatabaseServer, database: str
) -> None:
    """Beyond the point: one before rows that are at the sink, one after them, and one that is not there."""
    make_tables(mariadb_server, database)
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "parquet"}})
    world.capture()
    insert(mariadb_server, database, "busy", 0, 10)
    world.capture()
    world.deliver()
    insert(mariadb_server, database, "quiet", 0, 3, width=1)
    run_statements(mariadb_server, database, ["ALTER TABLE busy ADD a INT"])
    run_statements(mariadb_server, database, ["INSERT INTO busy VALUES (10, 'x', 1)"])
    run_statements(mariadb_server, database, ["ALTER TABLE busy ADD b INT"])
    world.capture()
    schemas = tmp_path / "lake" / database / "busy" / "_meta"

    def told() -> list[str]:
        files = sorted(schemas.glob("schema_*.json"), key=lambda path: int(path.name.split("_")[1]))
        return [query for path in files if (query := json.loads(path.read_text())["Query"])]

    world.deliver(flushed=False, until=lambda: any("ADD b INT" in one for one in told()))
    before = told()
    assert progress(world)["point"]["position"]["gtid"]
    world.lose()
    run_statements(mariadb_server, database, ["ALTER TABLE busy ADD c INT"])
    run_statements(mariadb_server, database, ["INSERT INTO busy VALUES (11, 'x', 1, 2, 3)"])
    recover_from_sinks(world.config)
    world.capture()
    world.deliver()
    assert told()[: len(before)] == before
    assert ["ADD c INT" in one for one in told()[len(before) :]] == [True]
    assert ids(world, "lake", f"{database}.busy") == list(range(12))
    report = verify(world.config).sinks[0]
    assert report.equal, report.faults


def test_tables_that_are_one_at_the_sink(tmp_path: Path, mariadb_server: DatabaseServer, database: str) -> None:
    """Their rows have one order, that of the source over all of them."""
    make_tables(mariadb_server, database)
    run_statements(mariadb_server, database, [f"CREATE TABLE s_{n} (id INT PRIMARY KEY, v VARCHAR(500))" for n in "ab"])
    rule = {"table": f"{database}.s_*", "route": "one.shards"}
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "parquet", "rules": [rule]}})
    world.capture()
    insert(mariadb_server, database, "s_a", 0, 5)
    world.capture()
    world.deliver()
    insert(mariadb_server, database, "quiet", 0, 3, width=1)
    for first in range(5, 405, 10):
        insert(mariadb_server, database, f"s_{'ab'[first // 10 % 2]}", first, 10)
    world.capture()
    world.deliver(flushed=False, until=beyond(world, "lake", "one.shards", 200))
    before = ids(world, "lake", "one.shards")
    world.lose()
    insert(mariadb_server, database, "s_b", 405, 5)
    recover_from_sinks(world.config)
    world.capture()
    world.deliver()
    assert ids(world, "lake", "one.shards")[: len(before)] == before
    assert ids(world, "lake", "one.shards") == list(range(410))


def test_several_sinks_each_drop_what_they_have(tmp_path: Path, server: DatabaseServer, database: str) -> None:
    """The oldest place of all counts; the other sink has everything up to a later one."""
    sinks = {
        "slow": {"format": "parquet"},
        "fast": {"format": "canal-json", "flush": {"size": "64KiB", "every": "1h"}},
    }
    make_tables(server, database)
    world = World(tmp_path, server_source(server, database), sinks)
    world.capture()
    insert(server, database, "busy", 0, 20)
    world.capture()
    world.deliver()
    old = {path: path.read_bytes() for path in (tmp_path / "slow").rglob("*") if path.is_file()}
    insert(server, database, "busy", 20, 30)
    insert(server, database, "quiet", 0, 4, width=1)
    world.capture()
    world.deliver()
    for path in list((tmp_path / "slow").rglob("*")):  # as if it had never got what came after
        if path.is_file() and path not in old and "_penstock" not in path.parts:
            path.unlink()
    for path, data in old.items():
        if path.name != "owner.json":
            path.write_bytes(data)
    assert progress(world, "slow")["point"]["position"]["pos"] < progress(world, "fast")["point"]["position"]["pos"]
    insert(server, database, "quiet", 4, 2, width=1)
    world.lose()
    found = recover_from_sinks(world.config)
    assert str(found.position).endswith(f":{progress(world, 'slow')['point']['position']['pos']}")
    world.capture()
    world.deliver()
    for sink in sinks:
        assert ids(world, sink, f"{database}.busy") == list(range(50)), sink
        assert ids(world, sink, f"{database}.quiet") == list(range(6)), sink
    assert all(report.equal for report in verify(world.config).sinks)


def test_rows_of_a_load_are_named_and_refused_without_a_flag(
    tmp_path: Path, mariadb_server: DatabaseServer, database: str
) -> None:
    make_tables(mariadb_server, database)
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "canal-json"}})
    world.capture()
    insert(mariadb_server, database, "busy", 0, 10)
    world.capture()
    world.deliver()
    path = tmp_path / "lake" / next(name for name in world.files("lake") if "/busy/" in name)
    lines = path.read_bytes().decode().splitlines(keepends=True)
    seq = json.loads(lines[0])["_penstock"]["seq"].split(":")
    chunk = lines[0].replace(":".join(seq), f"{int(seq[0]) + 5}:0:0:0")
    path.write_bytes("".join([*lines, chunk]).encode())
    world.lose()
    with pytest.raises(BadInput, match=rf"{database}.busy: 1 rows of a load") as refused:
        recover_from_sinks(world.config)
    assert "--accept-doubled" in refused.value.hint
    assert not (world.state_dir / RECOVERY_MARK).exists()
    assert recover_from_sinks(world.config, accept_doubled=True).doubled


def test_a_source_with_another_history_is_refused(world: World, mariadb_server: DatabaseServer, database: str) -> None:
    """The last row at the sink is not the one that the source has in its place."""
    path = world.directory / "lake" / [name for name in world.files("lake") if "/busy/" in name][-1]
    rows = open_format("parquet").rows(path.read_bytes())
    changed = rows.column("v").to_pylist()
    changed[-1] = "something else"
    at = rows.schema.get_field_index("v")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(changed, rows.schema.field(at).type)), path)
    with pytest.raises(BadInput, match=r"its last change is .*something else"):
        recover_from_sinks(world.config)


def test_an_older_copy_of_the_state_directory_writes_nothing_again(
    tmp_path: Path, mariadb_server: DatabaseServer, database: str
) -> None:
    """A table that is new since then would begin in a directory of its own, where no file is in the way."""
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "parquet"}})
    run_statements(mariadb_server, database, ["CREATE TABLE old (id INT PRIMARY KEY)"])
    world.capture()
    run_statements(mariadb_server, database, ["INSERT INTO old VALUES (1)"])
    world.capture()
    world.deliver()
    copy = shutil.copytree(world.state_dir, tmp_path / "copy", ignore=shutil.ignore_patterns("run"))
    run_statements(mariadb_server, database, ["CREATE TABLE new (id INT PRIMARY KEY)", "INSERT INTO new VALUES (2)"])
    world.capture()
    world.deliver()
    before = world.files("lake")
    world.lose()
    shutil.copytree(copy, world.state_dir)
    world.capture()
    with pytest.raises(AssertionError, match=r"it is an older copy, and would write the rest again"):
        world.deliver()
    assert world.files("lake") == before
    world.lose()
    recover_from_sinks(world.config)
    world.capture()
    world.deliver()
    assert (ids(world, "lake", f"{database}.old"), ids(world, "lake", f"{database}.new")) == ([1], [2])


def test_a_prefix_that_was_adopted_has_no_point_any_more(world: World) -> None:
    """What the new log writes there does not come after it."""
    assert progress(world)["point"] is not None
    text = (world.directory / "lake" / OWNER_PATH).read_text()
    value = json.loads(text)
    (world.directory / "lake" / OWNER_PATH).write_text(json.dumps({**value, "log_uuid": "another", "claim": "x"}))
    assert adopt_sinks(world.config, ["lake"]) == ["lake"]
    assert progress(world)["point"] is None
    with pytest.raises(BadInput, match="no point"):
        recover_from_sinks(world.config)


def test_a_recovery_on_s3(tmp_path: Path, mariadb_server: DatabaseServer, database: str, s3_url: str) -> None:
    make_tables(mariadb_server, database)
    world = World(tmp_path, server_source(mariadb_server, database), {"lake": {"format": "parquet", "url": s3_url}})
    world.capture()
    insert(mariadb_server, database, "busy", 0, 10)
    world.capture()
    world.deliver()
    insert(mariadb_server, database, "quiet", 0, 3, width=1)
    insert(mariadb_server, database, "busy", 10, 300)
    world.capture()
    world.deliver(
        flushed=False, until=lambda: world.copied("lake") and len(ids(world, "lake", f"{database}.busy")) > 100
    )
    world.lose()
    recover_from_sinks(world.config)
    world.capture()
    world.deliver()
    world.copied("lake")
    assert ids(world, "lake", f"{database}.busy") == list(range(310))
    assert ids(world, "lake", f"{database}.quiet") == [0, 1, 2]
