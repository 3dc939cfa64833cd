"""The real delivery process with the real keeper over a real log: killed at random, nothing lost, nothing doubled."""

from __future__ import annotations

import random
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.changefeed import facts
from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import Maintainer
from penstock.delivery.keeper_client import DispatcherStart, Intent
from penstock.errors import PenstockError
from penstock.log import Log, LogReader
from penstock.log.position import Position, Seq
from penstock.supervisor.control_server import ControlServer, control_path
from penstock.supervisor.delivery_client import DeliveryClient
from penstock.supervisor.status import RunStatus
from penstock.wire import connect
from tests.delivery.rig import CHANGEFEED, Row, expected_tables, metadata, payloads_of, read_tables, stream
from tests.delivery.test_process import Delivery, stage
from tests.support.waiting import LIMIT_SECONDS

ENTRIES = 80
KILLS = 4


class DeadlyMaintainer(Maintainer):
    """Kills delivery with its n-th intent or done, half of the time before and half of the time after it is durable."""

    victim: subprocess.Popen[str]
    calls_left = -1

    def intent(self, run: str, dispatcher: str, epoch: int, intent: facts.Intent, *, replaces: bool = False) -> None:
        self._count()
        super().intent(run, dispatcher, epoch, intent, replaces=replaces)
        self._count()

    def done(self, run: str, dispatcher: str, epoch: int, seq: Seq, path: str | None) -> int:
        self._count()
        try:
            return super().done(run, dispatcher, epoch, seq, path)
        finally:
            self._count()

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.victim.kill()


def _no_status() -> RunStatus:
    raise NotImplementedError


def shifted(rows: list[Row], first: Position) -> list[Row]:
    """The rows at the log's real addresses."""
    return [
        Row(Seq(first.ledger_id, first.entry_id + r.seq.entry_id, r.seq.event, r.seq.row), r.commit_ts, r.schema, r.ddl)
        for r in rows
    ]


def resume_facts(answer: dict[str, dict[str, object]]) -> dict[str, DispatcherStart]:
    """What a task knows: progress, and where an open file ends."""
    found = {}
    for identity, value in answer.items():
        last = value["intent_last_seq"]
        intent = Intent("", Seq(0, 0, 0, 0), Seq.parse(str(last)), 0, 0) if last else None
        progress = Seq.parse(str(value["progress"])) if value["progress"] else None
        found[identity] = DispatcherStart(int(str(value["epoch"])), "", "", progress, None, intent)
    return found


def run(state_dir: Path, delivery: Delivery, rows: list[Row], rows_max: int) -> None:
    """As the driver does it: begin at the keeper, ranges from its start on, publish, flush."""
    with connect(control_path(state_dir)) as control:
        begun = control.call("begin_run", changefeed=CHANGEFEED)
    resume = resume_facts(begun["resume"])
    start = Position.parse(begun["start"]).entry_id
    last = rows[-1].seq.entry_id
    while start <= last:
        end = min(last, start + 6)
        inside = [r for r in rows if start <= r.seq.entry_id <= end]
        named = stage(delivery.client, begun["run"], start, end, payloads_of(inside, resume, rows_max=rows_max))
        ledger = rows[0].seq.ledger_id
        assert ledger == 1, "stage() of the process tests speaks of ledger 1"
        delivery.client.call(
            "publish", changefeed=CHANGEFEED, run=begun["run"], incarnation=begun["incarnation"], ranges=[named]
        )
        start = end + 1
    delivery.client.call("flush", changefeed=CHANGEFEED, timeout_seconds=LIMIT_SECONDS)


@pytest.mark.slow
def test_the_real_keeper_and_kill_9(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    random_ = random.Random(seed)
    (tmp_path / "run").mkdir()
    with ExitStack() as stack:
        log = Log.open(tmp_path / "log")
        stack.callback(log.close)
        positions = [p.result() for p in [log.append(b"x") for _ in range(ENTRIES)]]
        rows = shifted(stream(ENTRIES, tables=["orders", "items", "users"], seed=seed, ddl_every=17), positions[0])
        rows.append(Row(Seq(1, positions[-1].entry_id, 9, 0), rows[-1].commit_ts + 1, rows[-1].schema))
        reader = LogReader.open(tmp_path / "log")
        stack.callback(reader.close)
        keeper = Keeper.open(tmp_path, CHANGEFEED, reader)
        stack.callback(keeper.close)
        control = ControlServer(control_path(tmp_path), [CHANGEFEED], _no_status)
        stack.callback(control.close)
        maintainer = DeadlyMaintainer(keeper, DeliveryClient(tmp_path).begin_run)
        control.attach(maintainer)
        kills = 0
        for life in range(KILLS + 1):
            delivery = Delivery(tmp_path, tmp_path / "sink")
            stack.callback(delivery.kill)
            maintainer.victim = delivery.process
            maintainer.calls_left = random_.randint(1, 25) if life < KILLS else -1
            try:
                run(tmp_path, delivery, rows, random_.randint(1, 7))
                break
            except PenstockError as error:
                assert error.transient, f"seed {seed}: {error!r}"
                delivery.kill()
                kills += 1
        assert kills >= 2, f"seed {seed}: killed only {kills} times"
        assert read_tables(tmp_path / "sink") == expected_tables(rows), f"seed {seed}, {kills} kills"
        assert keeper.mark_delete == positions[-1], f"seed {seed}"
        assert metadata(tmp_path / "sink") == {"checkpoint-ts": keeper.checkpoint_ts}
