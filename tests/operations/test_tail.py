"""`penstock tail`: changes in the order of the log, whole transactions, and never a value that a mask hides."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from penstock.capture.loop import Capture
from penstock.cli.main import app
from penstock.log import Log, LogReader, LogSettings
from penstock.operations.config.loading import BadConfig, load
from penstock.operations.tail import following
from penstock.sources.demo.source import DemoSource
from penstock.sources.settings import DemoSettings
from tests.sources.mysql.streaming import fresh, session
from tests.sources.mysql.streaming import run as capture
from tests.sources.mysql.streaming import settings as server_settings
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tools.components.database import DatabaseServer

CHANGES = 3000
SECRET = "a-mask-key-of-a-test"


class Flow:
    """The log of a flow that read the demo shop, and its configuration."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.config = directory / "penstock.yaml"
        self.state_dir = directory / "state"
        sinks = {
            "lake": {"url": "./lake", "format": "parquet"},
            "raw": {
                "url": "./raw",
                "format": "csv",
                "only": ["shop.orders"],
                "rules": [{"table": "shop.orders", "mask": {"status": "redact"}, "route": "sales.{table}"}],
            },
        }
        document = {"version": 1, "state_dir": "./state", "source": {"type": "demo"}, "sinks": sinks, **more}
        self.config.write_text(yaml.safe_dump(document))

    def capture(self, settings: LogSettings | None = None) -> Log:
        self.state_dir.mkdir(mode=0o700, exist_ok=True)
        log = Log.open(self.state_dir / "log", settings or LogSettings())
        assert Capture(log, DemoSource(DemoSettings(type="demo", changes=CHANGES))).run(until_now=True)
        return log

    def penstock(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["tail", *arguments, "-c", str(self.config)])

    def read(self, *arguments: str) -> list[dict[str, Any]]:
        done = self.penstock(*arguments, "--from", "earliest", "--no-follow", "--json")
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    one = Flow(tmp_path)
    one.capture().close()
    return one


def numbers(seq: str) -> list[int]:
    return [int(part) for part in seq.split(":")]


def test_everything_in_the_order_of_the_log(flow: Flow) -> None:
    found = flow.read()
    rows = [one for one in found if one["op"] in ("insert", "update", "delete")]
    assert len(rows) >= CHANGES
    order = [numbers(one["seq"]) for one in found]
    assert order == sorted(order)
    assert {one["table"] for one in rows} == {"customers", "products", "orders", "order_items"}
    for one in rows[:500]:
        assert (one["before"] is None) == (one["op"] == "insert")
        assert (one["after"] is None) == (one["op"] == "delete")
    assert any(one["op"] == "ddl" and one["kind"] for one in found)


def test_the_secrets_of_the_source_are_not_asked_for(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the log alone; so does verify without the source."""
    monkeypatch.delenv("PASSWORD_OF_NOBODY", raising=False)
    document = yaml.safe_load(flow.config.read_text())
    secret = "${PASSWORD_OF_NOBODY}"
    tls = {"cert": "./cert", "key": "./key", "key_password": secret}
    document["source"] = {"type": "mysql", "host": "db", "user": "u", "password": secret, "tls": tls}
    flow.config.write_text(yaml.safe_dump(document))
    assert len(flow.read()) > CHANGES
    done = CliRunner().invoke(app, ["verify", "--no-source", "-c", str(flow.config)])
    assert "PASSWORD_OF_NOBODY" not in done.output
    with pytest.raises(BadConfig, match="PASSWORD_OF_NOBODY"):
        load(flow.config)


def test_some_tables_and_so_many(flow: Flow) -> None:
    assert {one["table"] for one in flow.read("shop.order*")} == {"orders", "order_items"}
    assert {one["table"] for one in flow.read("shop.orders", "shop.products")} == {"orders", "products"}
    assert len(flow.read("--limit", "7")) == 7


def test_from_a_position_in_the_middle(flow: Flow) -> None:
    whole = flow.read("shop.orders")
    middle = whole[len(whole) // 2]
    place = ":".join(middle["seq"].split(":")[:2])
    done = flow.penstock("shop.orders", "--from", place, "--no-follow", "--json")
    rest = [json.loads(line) for line in done.stdout.splitlines()]
    assert rest and rest == whole[len(whole) - len(rest) :]
    assert flow.penstock("--from", "1000h", "--no-follow", "--limit", "1", "--json").stdout
    assert flow.penstock("--from", "now", "--no-follow", "--json").stdout == ""


def test_lines_for_people(flow: Flow) -> None:
    done = flow.penstock("shop.orders", "--from", "earliest", "--no-follow", "--limit", "300")
    lines = done.stdout.splitlines()
    assert any(" I shop.orders  id=" in line for line in lines)
    assert any(" U shop.orders  id=" in line and " → " in line for line in lines)
    assert any(" ! shop.orders  CREATE TABLE" in line for line in lines)


def test_masks_for_every_sink_always_hold(tmp_path: Path) -> None:
    rule = {"table": "shop.customers", "mask": {"email": "hmac-sha256", "name": None}}
    plain = Flow(tmp_path)
    plain.capture().close()
    emails = {one["after"]["email"] for one in plain.read("shop.customers") if one.get("after")}
    assert len(emails) > 10
    masked = Flow(tmp_path, rules=[rule], mask_key=SECRET)
    for options in ((), ("--sink", "lake")):
        found = masked.read("shop.customers", *options)
        rows = [one for one in found if one["op"] != "ddl"]
        assert rows and {row["name"] for one in rows for row in (one["before"], one["after"]) if row} == {None}
    shown = masked.penstock("--from", "earliest", "--no-follow").output
    assert not [email for email in emails if email in shown]
    assert SECRET not in shown


def test_a_table_that_its_rules_do_not_fit_shows_nothing(tmp_path: Path) -> None:
    flow = Flow(tmp_path, rules=[{"table": "shop.customers", "mask": {"no_such_column": "redact"}}])
    flow.capture().close()
    found = flow.read("shop.customers")
    assert [one["op"] for one in found] == ["parked"], "named once, and no row of it"
    assert "no_such_column" in found[0]["reason"]


def test_what_goes_through_sql_is_not_shown(tmp_path: Path) -> None:
    """Spark alone could say what the sink gets; the clear row is nobody's business."""
    flow = Flow(tmp_path, rules=[{"table": "shop.customers", "sql": "SELECT id, sha2(email, 256) AS email FROM this"}])
    flow.capture().close()
    lines = flow.read()
    customers = [line for line in lines if line["table"] == "customers"]
    assert [line["op"] for line in customers] == ["parked"] and "go through sql" in customers[0]["reason"]
    assert len(lines) > 1 and "@" not in str(customers)


def test_as_a_sink_sees_them(flow: Flow) -> None:
    found = flow.read("--sink", "raw")
    assert {(one["schema"], one["table"]) for one in found} == {("sales", "orders")}
    rows = [one for one in found if one["op"] == "insert"]
    assert {one["after"]["status"] for one in rows} == {"***"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders",), "names no table"),
        (("--sink", "bus"), "there is no sink 'bus'"),
        (("--from", "yesterday"), "is no place in the log"),
        (("--from", "9999:0"), "is not in the log"),
        (("--from", "a:b"), "is no position"),
    ],
)
def test_bad_input_is_said_clearly(flow: Flow, arguments: tuple[str, ...], said: str) -> None:
    done = flow.penstock(*arguments, "--no-follow")
    assert done.exit_code == 2, done.output
    assert said in done.stderr


def test_a_time_before_all_times_is_the_beginning(flow: Flow) -> None:
    done = flow.penstock("--from", "99999999d", "--no-follow", "--json", "-n", "1")
    assert done.exit_code == 0 and json.loads(done.stdout.splitlines()[0])["seq"].startswith("1:"), done.output


def test_a_flow_without_a_log(tmp_path: Path) -> None:
    done = Flow(tmp_path).penstock("--no-follow")
    assert done.exit_code == 75 and "✗" in done.stderr


def test_it_leaves_no_trace_in_the_flow(flow: Flow) -> None:
    before = sorted(path.relative_to(flow.state_dir) for path in flow.state_dir.rglob("*"))
    flow.read("--limit", "5")
    after = sorted(path.relative_to(flow.state_dir) for path in flow.state_dir.rglob("*"))
    assert [path for path in after if path not in before and not path.name.startswith("metadata.sqlite-")] == []


def test_what_was_trimmed_meanwhile_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow reader loses its place; it goes on at what is left and says so, and only then."""
    monkeypatch.setattr(following, "CHUNK_BYTES", 1)
    # A trim stops at the oldest checkpoint of the state. Those are made in the background, so some trims take nothing yet.
    assert any(_is_lost_to_a_trim(tmp_path / str(attempt)) for attempt in range(8))


def _is_lost_to_a_trim(directory: Path) -> bool:
    """Whether a trim took changes away from a tail that had begun; what it says of it is checked."""
    directory.mkdir()
    flow = Flow(directory)
    log = flow.capture(LogSettings(ledger_bytes_max=64 << 10, retention_seconds=0.0, trim_without_cursors=False))
    sink = log.open_cursor("sink")
    notes: list[str] = []
    everything = [one.seq for one in following.tail(load(flow.config), start="earliest", follow=False)]
    found = following.tail(load(flow.config), start="earliest", follow=False, note=notes.append)
    shown = [next(found).seq]
    sink.mark_delete(log.end()).result()
    log.trim()
    shown += [one.seq for one in found]
    log.close()
    assert shown[-1] == everything[-1] and sorted(set(shown)) == shown
    lost = shown != everything
    assert any("was trimmed up to" in note for note in notes) == lost
    return lost


def test_what_comes_is_shown_as_it_comes(server: DatabaseServer, tmp_path: Path) -> None:
    with session(server) as cursor:
        fresh(cursor, "tails")
        cursor.execute("CREATE TABLE tails.t (id int primary key, v varchar(20), b varbinary(4))")
    source = server_settings(server, tables={"include": ["tails.*"]})
    capture(tmp_path / "state", source)
    flow = Flow(tmp_path)
    seen: list[Any] = []
    changes = following.tail(load(flow.config), ["tails.*"], seconds=LIMIT_SECONDS, note=lambda text: None)

    def look() -> None:
        for one in changes:
            seen.append(one)
            if len(seen) == 3:
                return

    reading = threading.Thread(target=look, daemon=True)
    reading.start()
    with session(server) as cursor:
        cursor.execute("INSERT INTO tails.t VALUES (1, 'ä \"quoted\"', x'00ff')")
        cursor.execute("UPDATE tails.t SET v = NULL")
        cursor.execute("DELETE FROM tails.t")
    capture(tmp_path / "state", source)
    wait_until(lambda: len(seen) == 3, "three changes", lambda: seen)
    inserted, updated, deleted = (json.loads(one.to_json()) for one in seen)
    assert inserted["after"] == {"id": 1, "v": 'ä "quoted"', "b": {"base64": "AP8="}}
    assert updated["before"]["v"] == 'ä "quoted"' and updated["after"]["v"] is None
    assert deleted["op"] == "delete" and deleted["before"]["id"] == 1


_STATEMENTS = {
    "a table that was renamed": ("RENAME TABLE tailmask.users TO tailmask.people",),
    "renamed twice": ("RENAME TABLE tailmask.users TO tailmask.p", "RENAME TABLE tailmask.p TO tailmask.people"),
    "a column that was renamed": ("ALTER TABLE tailmask.users CHANGE email mail VARCHAR(40)",),
    "and changed after that": (
        "ALTER TABLE tailmask.users CHANGE email mail VARCHAR(40)",
        "ALTER TABLE tailmask.users ADD more INT",
    ),
}


@pytest.mark.parametrize("name", list(_STATEMENTS))
@pytest.mark.parametrize("begin", ["earliest", "later"])
def test_what_a_rule_hid_is_not_shown_under_another_name(
    server: DatabaseServer, tmp_path: Path, name: str, begin: str
) -> None:
    """Wherever the tail begins: a sink stops in front of such a statement."""
    with session(server) as cursor:
        fresh(cursor, "tailmask")
        cursor.execute("CREATE TABLE tailmask.users (id INT PRIMARY KEY, email VARCHAR(40))")
        cursor.execute("CREATE TABLE tailmask.other (id INT PRIMARY KEY, email VARCHAR(40))")
    source = server_settings(server, tables={"include": ["tailmask.*"]})
    state = tmp_path / "state"
    capture(state, source)
    table = "users" if "column" in name or "changed" in name else "people"
    with session(server) as cursor:
        for statement in _STATEMENTS[name]:
            cursor.execute(statement)
    capture(state, source)
    reader = LogReader.open(state / "log")
    place = "earliest" if begin == "earliest" else str(reader.next(reader.end()))
    reader.close()
    with session(server) as cursor:
        cursor.execute(
            f"INSERT INTO tailmask.{table} (id, {'mail' if table == 'users' else 'email'}) VALUES (1, 'me@home')"
        )
        cursor.execute("INSERT INTO tailmask.other VALUES (1, 'you@home')")
    capture(state, source)
    rule = {"table": "tailmask.users" if table == "people" else "tailmask.*", "mask": {"email": "redact"}}
    rules = [rule, {"table": "tailmask.other", "mask": {"email": "redact"}}]
    flow = Flow(tmp_path, rules=rules)
    done = flow.penstock("tailmask.*", "--from", place, "--no-follow", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert "@home" not in done.stdout
    assert [one["table"] for one in found if one["op"] == "insert"] == ["other"]
    assert [one["table"] for one in found if one["op"] == "parked"][-1:] == [table]
    assert "@home" not in flow.penstock(f"tailmask.{table}", "--from", place, "--no-follow").stdout
