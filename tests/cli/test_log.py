"""`penstock log` on real logs: what it shows, what it finds, and that it only looks where it says so."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.log import Cursor, Log, LogReader, LogSettings, Position
from penstock.operations.log.verify import verify_log
from tests.support.waiting import LIMIT_SECONDS

ENTRIES = 12
COMMANDS = ("create", "append", "read", "tail", "ls", "inspect", "verify", "cursors", "trim", "offload", "skip")


def run(*arguments: object, stdin: str | None = None) -> Result:
    done = CliRunner().invoke(app, ["log", *map(str, arguments)], input=stdin)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def penstock(*arguments: object, stdin: str | None = None) -> tuple[int, str]:
    done = run(*arguments, stdin=stdin)
    return done.exit_code, done.output


def asked(*arguments: object, code: int = 0) -> list[Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == code, done.output
    return [json.loads(line) for line in (done.stdout or done.stderr).splitlines()]  # the result, or the error


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three ledgers of four entries; a cursor at the second entry, with two holes."""
    directory = tmp_path / "orders"
    with Log.open(directory, LogSettings(ledger_entries_max=4, maintenance_interval_seconds=0)) as owner:
        positions = [owner.append(b"entry %d" % number).result() for number in range(ENTRIES)]
    reader = LogReader.open(directory)
    cursor = Cursor.open(reader, directory / "cursors", "lake")
    cursor.mark_delete(positions[1]).result()
    for position in (positions[3], positions[6], positions[7]):
        cursor.ack(position).result()
    cursor.close()
    reader.close()
    return directory


def files_of(directory: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and "metadata.sqlite" not in path.name
    }


def test_help_teaches(tmp_path: Path) -> None:
    code, text = penstock("--help")
    assert code == 0
    for name in COMMANDS:
        assert name in text
        code, help_text = penstock(name, "--help")
        assert code == 0
        assert "--json" in help_text


def test_create_append_read(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    (made,) = asked("create", path)
    code, _ = penstock("append", path, "one", "two")
    assert code == 0
    code, _ = penstock("append", path, stdin="three\nfour\n")
    assert code == 0
    entries = asked("read", path)
    assert [entry["data"] for entry in entries] == ["one", "two", "three", "four"]
    assert asked("ls", path)[0]["uuid"] == made["uuid"]
    again = asked("read", path, "--from", entries[1]["position"], "--to", entries[2]["position"])
    assert again == entries[1:3]
    assert penstock("read", path, "--raw", "--limit", 2) == (0, "onetwo")
    assert [entry["data"] for entry in asked("tail", path, "-n", 1, "--no-follow")] == ["four"]
    code, text = penstock("create", path)
    assert code == 2
    assert "nothing was changed" in text


def test_lines_are_appended_as_they_come(tmp_path: Path) -> None:
    log = tmp_path / "log"
    penstock("create", log)
    command = [sys.executable, "-m", "penstock", "log", "append", str(log)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as appending:
        assert appending.stdin is not None
        assert appending.stdout is not None
        watch = threading.Timer(LIMIT_SECONDS, appending.kill)
        watch.start()
        appended = 0
        for part in (b"first\n", b"second\r\nthird\n\nthe begi", b"nning of a line\n"):
            appending.stdin.write(part)
            appending.stdin.flush()
            appended += part.count(b"\n")
            last = appending.stdout.readline().split()[-1].decode()
            assert last.endswith(f":{appended - 1}"), "it is durable while the next one is still to come"
        appending.stdin.write(b"x\n" * 100_000 + b"the last one")
        appending.stdin.close()
        assert appending.wait(LIMIT_SECONDS) == 0
        watch.cancel()
    raw = run("read", log, "--json").stdout.splitlines()
    entries = [json.loads(line)["data"] for line in raw]
    assert entries[:5] == ["first", "second", "third", "", "the beginning of a line"]
    assert entries[5:] == ["x"] * 100_000 + ["the last one"]


def test_binary_data_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    asked("create", path)
    with Log.open(path) as owner:
        owner.append(b"\xff\x00\x1b[31m").result()
    assert asked("read", path)[0]["data_hex"] == "ff001b5b33316d"
    assert "\x1b" not in penstock("read", path)[1], "control characters of an entry reach the terminal"


def test_ls_and_cursors(log: Path) -> None:
    (listed,) = asked("ls", log)
    assert listed["entries"] == ENTRIES
    assert [ledger["entries"] for ledger in listed["ledgers"] if ledger["entries"]] == [4, 4, 4]
    ((cursor,),) = asked("cursors", log)
    assert (cursor["name"], cursor["mark_delete"]) == ("lake", "1:1")
    assert cursor["backlog_entries"] == ENTRIES - 2 - 3
    unacked = [2, 4, 5, 8, 9, 10, 11]
    assert cursor["backlog_bytes"] == sum(len(b"entry %d" % number) for number in unacked)
    assert cursor["holes"] == 2
    for command in ("ls", "cursors", "inspect", "verify"):
        code, text = penstock(command, log)
        assert code == 0, text
    assert "lake" in penstock("cursors", log)[1]


def test_inspect_shows_frames_and_verify_agrees(log: Path) -> None:
    frames = asked("inspect", log)
    assert len(frames) == ENTRIES
    assert all(frame["ok"] for frame in frames)
    assert [frame["entry_id"] for frame in asked("inspect", log, "--ledger", 2)] == [0, 1, 2, 3]
    assert all(frame["ok"] for frame in asked("inspect", log, "--cursor", "lake"))
    (check,) = asked("verify", log)
    assert check["sound"]
    assert check["entries"] == ENTRIES
    assert check["record_logs"] == 1
    assert penstock("inspect", log, "--ledger", 99)[0] == 2
    assert penstock("inspect", log, "--cursor", "nobody")[0] == 2


def flip(path: Path, offset: int, bit: int = 0) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1 << bit
    path.write_bytes(raw)


def test_verify_says_what_is_wrong_where(log: Path) -> None:
    ledger = log / f"ledger-{2:016d}.log"
    frame = asked("inspect", log, "--ledger", 2)[1]
    flip(ledger, frame["offset"] + 66)
    before = files_of(log)
    (check,) = asked("verify", log, code=1)
    assert [(fault["file"], fault["offset"]) for fault in check["faults"]] == [(str(ledger), frame["offset"])]
    assert "entry 1" in check["faults"][0]["what"]
    (bad,) = asked("inspect", log, "--bad", code=1)
    assert (bad["offset"], bad["entry_id"]) == (frame["offset"], 1)
    code, text = penstock("read", log)
    assert code == 1
    assert "damaged" in text
    assert files_of(log) == before


def test_inspect_goes_on_after_a_broken_header(log: Path) -> None:
    frames = asked("inspect", log, "--ledger", 2)
    flip(log / f"ledger-{2:016d}.log", frames[1]["offset"] + 20)
    again = asked("inspect", log, "--ledger", 2, code=1)
    assert [frame["ok"] for frame in again] == [True, False, True, True]
    assert "entry_id" not in again[1]


def bits(raw: bytes) -> Iterator[tuple[int, int]]:
    for offset in range(0, len(raw), 11):
        yield offset, offset % 8


def test_every_flipped_bit_is_found(log: Path) -> None:
    assert verify_log(log).sound
    looked = 0
    for path, raw in files_of(log).items():
        if path.suffix == ".lock" or path.name == "lock":
            continue
        for offset, bit in bits(raw[:2700]):  # of the end file, what is ever written
            if path.name.endswith("end") and offset % 33:
                continue  # it is read several times to be sure: a part of it is enough
            flip(path, offset, bit)
            check = verify_log(log)
            assert not check.sound, f"bit {bit} of byte {offset} of {path}"
            assert path in [fault.path for fault in check.faults], (
                f"bit {bit} of byte {offset} of {path}: {check.faults}"
            )
            looked += 1
        path.write_bytes(raw)
    assert looked > 150
    assert verify_log(log).sound


@pytest.mark.parametrize("text", [b'"next_ledger":', b'"mark_delete":"'])
def test_a_flipped_bit_of_the_metadata_is_found(log: Path, text: bytes) -> None:
    path = log.parent / "metadata.sqlite"
    raw = path.read_bytes()
    assert text in raw
    flip(path, raw.rindex(text) + len(text))  # a digit becomes another one: still a document that can be read
    check = verify_log(log)
    assert path in [fault.path for fault in check.faults]


@pytest.mark.parametrize("name", ["ledger-0000000000000002.log", "end", "cursors/lake.current", "cursors/lake.end"])
def test_what_is_cut_or_gone_is_found(log: Path, name: str) -> None:
    path = log / name
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 4 if name.endswith("end") else len(raw) - 7])
    assert not verify_log(log).sound
    path.unlink()
    code, text = penstock("verify", log)
    assert code == 1
    assert path.name in text
    path.write_bytes(raw)
    assert verify_log(log).sound


def test_a_log_with_a_living_owner(tmp_path: Path) -> None:
    """Looking does not disturb the owner, and what it writes meanwhile is never called damaged."""
    writer = Path(__file__).parent.parent / "log" / "writer_process.py"
    with subprocess.Popen([sys.executable, str(writer), str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(60):
                assert process.stdout.readline()
            first = seen = verify_log(tmp_path).entries
            deadline = time.monotonic() + LIMIT_SECONDS
            looks = 0
            while looks < 4 or seen == first:  # the owner must have gone on meanwhile
                assert time.monotonic() < deadline, "the owner stands still"
                check = verify_log(tmp_path)
                assert check.sound, check.faults
                assert check.entries >= seen
                seen, looks = check.entries, looks + 1
                for _ in range(20):
                    process.stdout.readline()
            ((cursor,),) = asked("cursors", tmp_path)
            assert cursor["fault"] is None
            assert cursor["holes"] > 0
            assert all(frame["ok"] for frame in asked("inspect", tmp_path, "--limit", 50))
            code, text = penstock("append", tmp_path, "strange")
            assert code == 75, text
            assert process.poll() is None
        finally:
            process.kill()
    check = verify_log(tmp_path)
    assert check.sound, check.faults


def test_tail_follows_another_process(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    with Log.open(path, LogSettings(ledger_entries_max=2, maintenance_interval_seconds=0)) as owner:
        owner.append(b"old").result()
        command = [sys.executable, "-m", "penstock.cli", "log", "tail", str(path), "--json", "--seconds", "40"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["data"] == "old"
                for number in range(7):  # over several ledgers
                    owner.append(b"new %d" % number).result()
                    assert json.loads(process.stdout.readline())["data"] == f"new {number}"
                    time.sleep(0.01)
            finally:
                process.kill()


def test_cursors_are_listed_when_a_ledger_is_damaged(log: Path) -> None:
    reader = LogReader.open(log)
    with Cursor.open(reader, log / "cursors", "other", Position(2, 1)):
        pass
    reader.close()
    flip(log / "ledger-0000000000000002.log", 64 + 8)  # the header of an entry
    code, text = penstock("cursors", log, "--json")
    assert code == 1
    lake, other = json.loads(text)
    for cursor in (lake, other):
        assert cursor["backlog_entries"] > 0
        assert (cursor["backlog_bytes"] is None) == (cursor["fault"] is not None)
    assert "ledger-0000000000000002.log is damaged" in other["fault"]
    code, text = penstock("cursors", log)
    assert code == 1
    assert "lake" in text


def test_skip_names_what_is_lost_and_wants_to_be_sure(log: Path) -> None:
    flip(log / "ledger-0000000000000002.log", 64 + 66)
    assert penstock("read", log)[0] == 1
    before = files_of(log.parent)
    code, text = penstock("skip", log, 2)
    assert code == 0
    assert "would be lost: 1 entries" in text
    assert "2:0" in text
    assert "cursor lake had not acked 1 of them" in text
    assert "nothing was changed" in text
    assert files_of(log.parent) == before
    assert penstock("read", log)[0] == 1
    (lost,) = asked("skip", log, 2, "--yes")
    assert lost == {
        "ledger_id": 2,
        "ranges": [["2:0", "2:0"]],
        "entries": 1,
        "bytes": lost["bytes"],
        "entries_kept": 3,
        "cursors": {"lake": 1},
        "skipped": True,
    }
    assert len(asked("read", log)) == ENTRIES - 1
    (listed,) = asked("ls", log)
    assert [ledger["skipped"] for ledger in listed["ledgers"] if ledger["skipped"]] == [[[0, 0]]]
    assert "skipped, cannot be read: 2:0" in penstock("ls", log)[1]
    ((cursor,),) = asked("cursors", log)
    assert cursor["backlog_entries"] == ENTRIES - 2 - 3 - 1
    assert penstock("verify", log)[0] == 0
    code, text = penstock("skip", log, 2, "--yes")
    assert code == 2
    assert "there is nothing to skip" in text
    with Log.open(log):
        assert penstock("skip", log, 1, "--yes")[0] == 75


def test_trim_removes_what_all_cursors_passed(log: Path) -> None:
    assert penstock("trim", log)[0] == 2, "nothing says what may go"
    assert asked("trim", log, "--keep-seconds", 0)[0]["ledgers"] == []
    reader = LogReader.open(log)
    cursor = Cursor.open(reader, log / "cursors", "lake")
    cursor.mark_delete(Position(2, 3)).result()
    cursor.close()
    reader.close()
    assert asked("trim", log, "--keep-seconds", 0, "--dry-run")[0]["ledgers"] == [1, 2]
    assert asked("ls", log)[0]["entries"] == ENTRIES
    assert asked("trim", log, "--keep-seconds", 0)[0]["ledgers"] == [1, 2]
    assert asked("ls", log)[0]["entries"] == 4
    assert verify_log(log).sound
    code, text = penstock("read", log, "--from", "1:0")
    assert code == 2
    assert "3:0" in text


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.s3)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return str(request.getfixturevalue("s3_url"))
    return (tmp_path / "objects").as_uri()


def test_offload_copies_then_moves_and_everything_still_reads(log: Path, store_url: str) -> None:
    before = [asked(command, log) for command in ("read", "cursors")]
    assert asked("offload", log, "--to", store_url, "--dry-run") == [
        {"copied": [1, 2, 3], "moved": [], "dry_run": True}
    ]
    *progress, done = asked("offload", log, "--to", store_url)
    assert done == {"copied": [1, 2, 3], "moved": [], "dry_run": False}
    assert {line["event"] for line in progress} == {"progress"}
    assert [line["ledger_id"] for line in progress if line["bytes"] == line["bytes_total"]] == [1, 2, 3]
    ledgers = asked("ls", log)[0]["ledgers"][:3]
    assert [(one["local"], one["offload"]["state"], one["offload"]["url"]) for one in ledgers] == [
        (True, "copied", store_url)
    ] * 3
    text = penstock("ls", log)[1]
    assert text.count("both") == 3
    assert f"3 ledgers at {store_url}" in text
    check = asked("verify", log)[0]
    assert (check["sound"], check["offloaded"], check["entries"]) == (True, 3, ENTRIES)
    *_, done = asked("offload", log, "--to", store_url, "--lag-seconds", 0)
    assert done["moved"] == [1, 2, 3]
    assert not list(log.glob("ledger-000000000000000[123].log"))
    assert [one["local"] for one in asked("ls", log)[0]["ledgers"][:3]] == [False] * 3
    assert [asked(command, log) for command in ("read", "cursors")] == before
    check = asked("verify", log)[0]
    assert (check["sound"], check["offloaded"], check["entries"]) == (True, 3, ENTRIES)
    frames = asked("inspect", log, "--ledger", 2)
    assert [line["entry_id"] for line in frames] == [0, 1, 2, 3]
    assert all(line["ok"] and line["file"].startswith(store_url) for line in frames)


def test_verify_names_what_is_wrong_with_an_offloaded_copy(log: Path, tmp_path: Path) -> None:
    url = (tmp_path / "objects").as_uri()
    asked("offload", log, "--to", url)
    names = sorted(path for path in (tmp_path / "objects").rglob("0*") if path.is_file())
    pristine = {path: path.read_bytes() for path in names}
    assert len(names) == 6
    rng = random.Random(5)
    for path, raw in pristine.items():
        for _ in range(40):
            at = rng.randrange(len(raw))
            path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :])
            check = verify_log(log)
            assert [fault for fault in check.faults if str(fault.path) == f"{url}/{path.parent.name}/{path.name}"], (
                f"byte {at} of {path}: {check.faults}"
            )
        for damaged in (raw[:-1], raw[: len(raw) // 2], b"", raw + b"x" if path.suffix == ".index" else b"x"):
            path.write_bytes(damaged)
            assert not verify_log(log).sound
        path.unlink()
        check = verify_log(log)
        assert "missing" in check.faults[0].what
        path.write_bytes(raw)
    assert verify_log(log).sound
    code, text = penstock("verify", log)
    assert code == 0
    assert "3 offloaded copies" in text
    # Both copies are sound by themselves, but not the same.
    other = names[1] if names[1].suffix == ".part" else names[0]
    ledger = log / f"ledger-{1:016d}.log"
    local = ledger.read_bytes()
    ledger.write_bytes(local[:70] + bytes([local[70] ^ 1]) + local[71:])
    faults = verify_log(log).faults
    assert [fault for fault in faults if fault.path == ledger and other.name in fault.what], faults


def test_refusals(log: Path, tmp_path: Path) -> None:
    for command in [name for name in COMMANDS if name != "create"]:
        options = {"trim": ("--keep-seconds", 0), "offload": ("--to", "file:///x"), "skip": (1,)}.get(command, ())
        code, text = penstock(command, tmp_path / "nowhere", *options)
        assert code == 2, command
        assert "holds no log" in text
    assert penstock("offload", log)[0] == 2, "nothing says where to"
    for url in ("nowhere", "ftp://host/x", "s3://key:secret@bucket"):
        code, text = penstock("offload", log, "--to", url)
        assert code == 2
        assert "secret" not in text
    assert penstock("read", log, "--from", "soon")[0] == 2
    (tmp_path / "progress").mkdir()  # as beside the log of a flow
    code, text = penstock("append", log, "strange")
    assert code == 2
    assert "penstock run" in text


def test_counts_of_one_are_singular_and_a_listing_fits_into_100_columns(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", LogSettings(preallocate_bytes=0)) as log:
        log.append(b"only one" * 1000).result()
    _, listed = penstock("ls", tmp_path / "log")
    assert "  1 entry  " in listed
    assert max(len(line) for line in listed.splitlines()[1:]) <= 100
    _, checked = penstock("verify", tmp_path / "log")
    assert "1 ledger with 1 entry · 0 record logs with 0 records" in checked
    assert "0 faults" in checked
