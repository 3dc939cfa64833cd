"""The real delivery process over real sockets: killed in the middle, started again, asked to stop."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.delivery.payload import Payload
from penstock.errors import BadInput, StaleRun, Unavailable
from penstock.process import EXIT_CONFIGURATION
from penstock.wire import Client, Server, connect, socket_path
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED, Row, expected_tables, payloads_of, stream
from tests.support.waiting import LIMIT_SECONDS, wait_until

KILLS = 5
ROOT = Path(__file__).parents[2]


class Delivery:
    """A delivery process; its settings are short intervals and tiny files."""

    def __init__(self, state_dir: Path, sink: Path, **changes: Any) -> None:
        flush = {"size": changes.pop("size", 1024), "every": changes.pop("every", 0.1)}
        settings = {
            "state_dir": str(state_dir),
            "log_uuid": "u1",
            "changefeeds": {CHANGEFEED: {"url": f"file://{sink}", "format": "canal-json", "flush": flush}},
            **changes,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.delivery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(settings) + "\n")
        self.process.stdin.flush()
        self.said = self.hear()
        self.client = Client(socket_path(state_dir / "run", "delivery"), timeout_seconds=LIMIT_SECONDS)

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline() or "{}"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def a_world(tmp_path: Path) -> Iterator[tuple[MemoryKeeper, ExitStack]]:
    keeper = MemoryKeeper()
    (tmp_path / "run").mkdir()
    server = Server(socket_path(tmp_path / "run", "control"), keeper.handlers())
    with ExitStack() as stack:
        stack.callback(server.close)
        yield keeper, stack


def begin(keeper: MemoryKeeper, delivery: Delivery, run: str) -> str:
    answer = delivery.client.call("begin_run", changefeed=CHANGEFEED, run=run)
    keeper.begin_run(run)
    assert answer["published_end"] is None
    return str(answer["incarnation"])


def stage(client: Client, run: str, start: int, end: int, payloads: list[Payload]) -> dict[str, Any]:
    for ordinal, p in enumerate(payloads):
        client.call(
            "stage",
            p.body,
            changefeed=CHANGEFEED,
            run=run,
            start=f"1:{start}",
            end=f"1:{end}",
            attempt=0,
            ordinal=ordinal,
            first_seq=str(p.first_seq),
            last_seq=str(p.last_seq),
            **{name: getattr(p, name) for name in Payload.__slots__ if name not in ("first_seq", "last_seq", "body")},
        )
    ts = max((p.last_commit_ts for p in payloads), default=0)
    return {"start": f"1:{start}", "end": f"1:{end}", "attempt": 0, "payloads": len(payloads), "commit_ts": ts}


def deliver(keeper: MemoryKeeper, delivery: Delivery, rows: list[Row], run: str, rows_max: int) -> None:
    """A run from the keeper's facts to the end of the rows."""
    incarnation = begin(keeper, delivery, run)
    facts = keeper.dispatchers(CHANGEFEED)
    start = keeper.mark_delete.entry_id + 1 if keeper.mark_delete is not None else 0
    entries = rows[-1].seq.entry_id + 1
    while start < entries:
        end = min(entries, start + 7) - 1
        inside = [r for r in rows if start <= r.seq.entry_id <= end]
        named = stage(delivery.client, run, start, end, payloads_of(inside, facts, rows_max=rows_max))
        delivery.client.call("publish", changefeed=CHANGEFEED, run=run, incarnation=incarnation, ranges=[named])
        start = end + 1
    delivery.client.call("flush", changefeed=CHANGEFEED, timeout_seconds=LIMIT_SECONDS)


def stopped_well(event: dict[str, Any]) -> bool:
    seconds = event.pop("stage_seconds")
    return set(seconds) == {"write"} and seconds["write"] > 0 and event == {"event": "stopped", "drained": True}


def read_json_tables(sink: Path) -> dict[str, list[bytes]]:
    from tests.delivery.rig import read_tables

    return read_tables(sink)


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    random_ = random.Random(seed)
    rows = stream(150, tables=["orders", "items", "users"], seed=seed, ddl_every=31)
    sink = tmp_path / "sink"
    with a_world(tmp_path) as (keeper, stack):
        kills = 0
        points = [0]
        limit = [0]
        delivery: Delivery | None = None

        def hook(_name: str) -> None:
            points[0] += 1
            if points[0] == limit[0] and delivery is not None:
                os.kill(delivery.process.pid, signal.SIGKILL)

        keeper.hook = hook
        for life in range(60):
            points[0], limit[0] = 0, random_.randint(1, 60) if life < KILLS else 0
            delivery = Delivery(tmp_path, sink)
            stack.callback(delivery.kill)
            try:
                deliver(keeper, delivery, rows, f"r{life}", rows_max=random_.randint(1, 9))
                break
            except Unavailable:
                delivery.kill()
                kills += 1
        assert kills >= 2, f"seed {seed}: it was killed only {kills} times"
        assert read_json_tables(sink) == expected_tables(rows), f"seed {seed}"
        assert keeper.mark_delete is not None
        assert keeper.mark_delete.entry_id == rows[-1].seq.entry_id  # the last entry may be without rows
        owner = json.loads((sink / "_penstock/owner.json").read_text())
        assert owner["epoch"] == kills + 1
        status = delivery.client.call("status")["changefeeds"][CHANGEFEED]
        assert all(each["last_error"] is None for each in status["dispatchers"].values())  # none where nothing was left


def test_segments_of_a_sink_that_was_removed_are_deleted(tmp_path: Path) -> None:
    """A process that dies leaves up to a quota of them, and the next one has no such sink any more."""
    left = tmp_path / "run" / "spool" / "old%2Fone"
    with a_world(tmp_path) as (_keeper, stack):
        left.mkdir(parents=True)
        (left / "00-0000000001-aaaaaaaa.seg").write_bytes(b"of a dead process")
        (left / "notes.txt").write_bytes(b"mine")
        (left.parent / "a file").write_bytes(b"mine")
        delivery = Delivery(tmp_path, tmp_path / "sink")
        stack.callback(delivery.kill)
        assert delivery.said["event"] == "ready"
        assert [path.name for path in left.iterdir()] == ["notes.txt"]
        assert (left.parent / "a file").exists()


def test_stops_when_standard_input_closes_and_drains(tmp_path: Path) -> None:
    rows = stream(9, seed=2)
    with a_world(tmp_path) as (keeper, stack):
        delivery = Delivery(tmp_path, tmp_path / "sink", every=3000)
        stack.callback(delivery.kill)
        assert delivery.said["event"] == "ready"
        incarnation = begin(keeper, delivery, "r")
        assert incarnation == delivery.said["incarnation"]
        named = stage(delivery.client, "r", 0, 8, payloads_of(rows, {}, rows_max=5))
        ranges = {"changefeed": CHANGEFEED, "run": "r", "incarnation": incarnation, "ranges": [named]}
        assert delivery.client.call("publish", **ranges) == {"accepted": 1}
        assert delivery.client.call("pressure", changefeed=CHANGEFEED)["spool_bytes"] > 0
        assert keeper.mark_delete is None
        with pytest.raises(StaleRun):
            delivery.client.call("publish", **{**ranges, "incarnation": "x"})
        with pytest.raises(BadInput, match="knows no changefeed 'x'"):
            delivery.client.call("pressure", changefeed="x")
        for paused in (True, False):
            delivery.client.call("pause", changefeed=CHANGEFEED, paused=paused)
            assert delivery.client.call("pressure", changefeed=CHANGEFEED)["suppressed"] is paused
        assert delivery.process.stdin is not None
        delivery.process.stdin.close()
        assert stopped_well(delivery.hear())
        assert delivery.process.wait(LIMIT_SECONDS) == 0
        assert read_json_tables(tmp_path / "sink") == expected_tables(rows)
        assert (tmp_path / "sink/metadata").exists()


def test_a_used_prefix_is_refused(tmp_path: Path) -> None:
    with a_world(tmp_path) as (_keeper, stack):
        (tmp_path / "sink").mkdir()
        (tmp_path / "sink/x").write_text("not ours")
        delivery = Delivery(tmp_path, tmp_path / "sink")
        stack.callback(delivery.kill)
        with pytest.raises(BadInput, match="no feed of Penstock owns"):
            delivery.client.call("begin_run", changefeed=CHANGEFEED, run="r")


def test_a_sink_that_anybody_could_have_made_is_refused(tmp_path: Path) -> None:
    sink = tmp_path / "lake"
    sink.mkdir()
    sink.chmod(0o777)
    delivery = Delivery(tmp_path / "state", sink)
    with delivery.process:
        assert delivery.said["event"] == "error"
        assert delivery.said["kind"] == "BadInput"
        assert f"{sink} is not used: it can be written to by everybody" in delivery.said["message"]
        assert delivery.process.wait(LIMIT_SECONDS) == EXIT_CONFIGURATION
    assert not list(sink.iterdir())


def test_bad_settings_are_reported(tmp_path: Path) -> None:
    delivery = Delivery(tmp_path, tmp_path / "sink", spool_high_bytes=1, spool_low_bytes=2)
    assert delivery.said["event"] == "error"
    assert delivery.said["kind"] == "BadInput"
    assert "spool watermarks: low 2 bytes must be at most high 1 bytes" in delivery.said["message"]
    assert delivery.process.wait(LIMIT_SECONDS) == 2
    delivery.close_pipes()


def test_dies_with_its_parent(tmp_path: Path) -> None:
    """A parent that is killed cannot close anything in order; delivery must not live on with the prefix locked."""
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-m', 'penstock.delivery'], stdin=subprocess.PIPE)\n"
        f"p.stdin.write(b'{json.dumps({'state_dir': str(tmp_path), 'changefeeds': {}})}\\n'); p.stdin.flush()\n"
        "time.sleep(60)\n"
    )
    reader, writer = os.pipe()
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=writer, cwd=ROOT, pass_fds=(writer,))
    os.close(writer)
    with os.fdopen(reader) as pipe:
        child = int(json.loads(pipe.readline())["pid"])
        with connect(socket_path(tmp_path / "run", "delivery")) as client:
            assert client.call("status")["changefeeds"] == {}
        parent.kill()
        parent.wait()
        wait_until(lambda: not Path(f"/proc/{child}/stat").exists() or _state(child) == "Z", "end of the child")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_changefeeds_come_and_go_while_others_go_on(tmp_path: Path) -> None:
    """One is added by a request and delivers; the first is removed, with what was published of it at the sink."""
    rows = stream(20, tables=["orders"], seed=1)
    with a_world(tmp_path) as (keeper, stack):
        one = Delivery(tmp_path, tmp_path / "sink", every=60.0, size=1 << 20)
        stack.callback(one.kill)
        incarnation = begin(keeper, one, "r1")
        wrong = ask(one, op="add", changefeed="new", settings={"url": "ftp://x", "format": "canal-json"})
        assert wrong["error"]["kind"] == "BadInput" and "url" in wrong["error"]["message"]
        settings = {"url": f"file://{tmp_path / 'new'}", "format": "parquet", "rules": []}
        assert ask(one, op="add", changefeed="new", settings=settings)["result"] == {}
        assert ask(one, op="add", changefeed="new", settings=settings)["result"] == {}, "it stays as it is"
        assert one.client.call("begin_run", changefeed="new", run="n1")["incarnation"] == incarnation
        named = stage(one.client, "r1", 0, 19, payloads_of(rows, {}, rows_max=5))
        one.client.call("publish", changefeed=CHANGEFEED, run="r1", incarnation=incarnation, ranges=[named])
        assert ask(one, op="remove", changefeed=CHANGEFEED)["result"] == {"drained": True}
        assert read_json_tables(tmp_path / "sink") == expected_tables(rows)
        assert list(one.client.call("status")["changefeeds"]) == ["new"]
        with pytest.raises(BadInput, match="knows no changefeed"):
            one.client.call("pressure", changefeed=CHANGEFEED)
        assert ask(one, op="remove", changefeed=CHANGEFEED)["result"] == {"drained": True}, "it is gone already"
        assert ask(one, op="dance")["error"]["kind"] == "BadInput"
        one.process.stdin.close()  # type: ignore[union-attr]
        assert stopped_well(one.hear())


def ask(delivery: Delivery, **request: Any) -> dict[str, Any]:
    assert delivery.process.stdin is not None
    delivery.process.stdin.write(json.dumps({"request": 7, **request}) + "\n")
    delivery.process.stdin.flush()
    answer = delivery.hear()
    assert (answer["event"], answer["request"]) == ("answer", 7)
    return answer
