"""`penstock state` on a real log, beside its owner: what it shows, what it finds, and that it only looks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.log import Log, LogSettings, Position
from penstock.state import BucketState, StateDescriptor
from penstock.state.types import codecs
from tests.cli.test_log import files_of
from tests.support.waiting import LIMIT_SECONDS

COMMANDS = ("ls", "get", "dump", "checkpoint", "verify")
TABLES: StateDescriptor[tuple[Any, ...], Any] = StateDescriptor(
    "tables", "capture", codecs.tuple_of(codecs.text, codecs.u64), codecs.json
)
COUNTS: StateDescriptor[int, Any] = StateDescriptor(
    "counts", "sink", codecs.u64, codecs.msgpack, table="shop", bucket=2
)


def penstock(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["state", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout or done.stderr  # the result, or the error


def asked(*arguments: object, code: int = 0) -> list[Any]:
    exit_code, output = penstock(*arguments, "--json")
    assert exit_code == code, output
    return [json.loads(line) for line in output.splitlines()]


def fill(log: Log) -> list[Position]:
    state = BucketState.open(log)
    positions = []
    for n in range(10):
        change = state.begin()
        state.store(TABLES).put(change, ("orders", n), {"columns": n})
        state.store(COUNTS).put(change, n, {"rows": n, "key": b"\xff"})
        state.raw_store("bytes", "bench").put(change, b"k%d" % n, b"\x00v")
        positions.append(state.commit(change, b"entry").result())
        if n in (4, 7):
            state.checkpoint()
    return positions


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Path]:
    """A log with state whose owner is at work."""
    with Log.open(tmp_path / "log", LogSettings(maintenance_interval_seconds=0)) as log:
        fill(log)
        yield tmp_path


def test_help_teaches() -> None:
    for command in COMMANDS:
        code, output = penstock(command, "--help")
        assert code == 0
        assert len(output.split()) > 30
    assert "OPERATOR/NAME" in penstock("--help")[1]


def test_ls_shows_stores_and_checkpoints(owned: Path) -> None:
    before = files_of(owned)
    (shown,) = asked("ls", owned)
    assert [(one["store"], one["keys"], one["key_codec"], one["value_codec"]) for one in shown["stores"]] == [
        ("capture/tables", 10, "tuple(text,u64)", "json"),
        ("shop/2/sink/counts", 10, "u64", "msgpack"),
        ("bench/bytes", 10, "bytes", "bytes"),
    ]
    assert shown["stores"][1]["schemas"] == {"1": "msgpack"}
    assert shown["stores"][0]["bytes"] > 100
    assert [one["position"] for one in shown["checkpoints"]] == ["1:7", "1:4"]
    assert shown["position"] == "1:9"
    assert shown["pinned"] == "1:5"
    code, text = penstock("ls", owned / "log")
    assert code == 0
    assert "capture/tables" in text
    assert "1:7" in text
    assert files_of(owned) == before


def test_get_shows_one_key_now_and_then(owned: Path) -> None:
    assert asked("get", owned, "tables", '["orders", 3]')[0]["value"] == {"columns": 3}
    assert asked("get", owned, "shop/2/sink/counts", "7")[0]["value"] == {"rows": 7, "key": "0xff"}
    assert asked("get", owned, "bytes", "k1")[0]["value"] == "0x0076"
    assert asked("get", owned, "bytes", "0x6b31")[0]["value"] == "0x0076"
    assert penstock("get", owned, "counts", "9")[1].strip() == '{"rows": 9, "key": "0xff"}'
    assert asked("get", owned, "counts", "9", "--at", "1:8", code=1)[0]["found"] is False
    assert asked("get", owned, "counts", "8", "--at", "1:8")[0]["found"] is True
    for arguments, says in (
        (("nothing", "1"), "there is no store called 'nothing'"),
        (("counts", "x"), "are numbers"),
        (("tables", "orders"), "JSON list"),
        (("counts", "0xz"), "hexadecimal"),
    ):
        (answer,) = asked("get", owned, *arguments, code=2)
        assert says in answer["error"]["message"] + answer["error"]["hint"]


def test_dump_shows_everything_in_order(owned: Path) -> None:
    everything = asked("dump", owned)
    assert len(everything) == 30
    assert [pair["key"] for pair in asked("dump", owned, "counts")] == list(range(10))
    assert [pair["key"] for pair in asked("dump", owned, "tables", "--prefix", '["orders"]', "--limit", 2)] == [
        ["orders", 0],
        ["orders", 1],
    ]
    assert asked("dump", owned, "tables", "--prefix", '["other"]') == []
    assert len(penstock("dump", owned, "bytes")[1].splitlines()) == 10
    assert len(asked("dump", owned, "--at", "1:3")) == 12


def test_checkpoint_needs_the_log_and_says_so(owned: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "state", "checkpoint", str(owned), "--json"],
        capture_output=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 75
    assert "written by the log's owner" in json.loads(done.stderr)["error"]["message"]


def test_checkpoint_is_written_where_nobody_owns_the_log(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log") as log:
        positions = fill(log)
    (answer,) = asked("checkpoint", tmp_path, "--compact")
    assert answer["checkpoint"]["position"] == str(positions[-1])
    assert "✓ checkpoint at" in penstock("checkpoint", tmp_path)[1]
    Log.open(tmp_path / "empty" / "log").close()
    assert asked("checkpoint", tmp_path / "empty") == [{"checkpoint": None}]
    assert "no stores" in penstock("ls", tmp_path / "empty")[1]


def test_verify_reads_every_byte_and_compares_every_way(owned: Path) -> None:
    before = files_of(owned)
    (check,) = asked("verify", owned)
    assert (check["sound"], check["checkpoints"], check["ways"], check["keys"]) == (True, 2, 3, 33)
    assert files_of(owned) == before
    run = sorted(path for path in (owned / "log" / "state").iterdir() if path.name.startswith("run-"))[0]
    raw = bytearray(run.read_bytes())
    raw[len(raw) // 2] ^= 1
    run.write_bytes(raw)
    (check,) = asked("verify", owned, code=1)
    assert any(run.name in fault for fault in check["faults"])
    code, text = penstock("verify", owned)
    assert code == 1
    assert "✗" in text


def test_verify_finds_a_checkpoint_that_says_something_else(owned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes are sound, its content is not that of the log."""
    from penstock.operations.state import checkpoints

    digest = checkpoints._digest
    monkeypatch.setattr(
        checkpoints, "_digest", lambda place, start, first, end: digest(place, start, first, start or end)
    )  # as if the frames after it were missing from the log
    (check,) = asked("verify", owned, code=1)
    assert any("leads to another state" in fault for fault in check["faults"])


@pytest.mark.parametrize("found", ["before", "after"])
def test_verify_leaves_out_what_the_owner_replaces_meanwhile(
    found: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints, and the frames after them, go before the replay, or after they were found."""
    from penstock.operations.state import checkpoints

    settings = LogSettings(maintenance_interval_seconds=0, retention_seconds=0)
    with Log.open(tmp_path / "log", settings) as log:
        fill(log)
    with Log.open(tmp_path / "log", settings) as log, BucketState.open(log) as state:
        replaced = 0

        def replace(*arguments: Any) -> Any:
            nonlocal replaced
            result = None if found == "before" else original(*arguments)
            if not replaced:
                for n in range(3):
                    state.store(COUNTS).write({n: {"rows": -n}}).result(LIMIT_SECONDS)
                    log.roll()
                    state.checkpoint()
                log.trim()
            replaced += 1
            return original(*arguments) if found == "before" else result

        name = "replay" if found == "before" else "find_checkpoints"
        original = getattr(checkpoints, name)
        monkeypatch.setattr(checkpoints, name, replace)
        (checked,) = asked("verify", tmp_path)
        assert checked["sound"]
        assert checked["ways"] >= 1
        assert checked["keys"] == 33  # with the registry
        assert replaced > 1
