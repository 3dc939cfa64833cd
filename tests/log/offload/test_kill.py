"""A real process whose ledgers move to a real store is killed with -9, again and again; another process reads all of it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from penstock.log import Log, LogReader
from penstock.log.offload.format import object_names
from penstock.objects import open_objects
from penstock.operations.log.verify import verify_log
from tests.log.offload import offload_process
from tests.log.offload.offload_process import payload, settings
from tests.support.budget import KILL_ROUNDS
from tests.support.waiting import wait_until


def test_killed_while_ledgers_move(tmp_path: Path, url: str) -> None:
    rng = random.Random(2)
    directory = tmp_path / "log"
    for _ in range(KILL_ROUNDS):
        process = subprocess.Popen(
            [sys.executable, offload_process.__file__, str(directory), url], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(rng.randrange(5, 60))]
        time.sleep(rng.random() * 0.02)
        process.kill()
        said += process.stdout.readlines()
        process.wait()
        process.stdout.close()
        told = int(next(line for line in reversed(said) if line.endswith("\n")).split()[0])
        reader = LogReader.open(directory)
        found = [bytes(entry.data) for entry in reader.read(reader.first, reader.end())]
        reader.close()
        assert len(found) >= told, "an acknowledged entry is lost"
        assert found == [payload(number) for number in range(len(found))]
        check = verify_log(directory)
        assert check.sound, check.faults
    with Log.open(directory, settings(url)) as log:
        wait_until(lambda: len(list(directory.glob("ledger-*"))) <= 1 or log.trim_soon(), "moved ledgers")
        log.reader().refresh()
        *views, last = log.reader().ledgers()
        assert [path.name for path in directory.glob("ledger-*")] == [f"ledger-{last.info.id:016d}.log"]
        assert not [view.info.id for view in views if view.info.is_local], log.statistics().offload_error
        assert len(views) > KILL_ROUNDS
        named = {
            name
            for view in views
            if view.info.offload is not None
            for name in object_names(log.uuid, view.info.id, view.info.offload.attempt, view.info.offload.parts)
        }
        assert set(open_objects(url).list(str(log.uuid))) == named, "objects that nobody names, or the other way round"
        log.reader().cache.drop(log.reader().cache_key)
        again = [bytes(entry.data) for entry in log.read(log.reader().first, log.end())]
        assert again[: len(found)] == found
    Log.delete(directory)
    assert open_objects(url).list(str(log.uuid)) == []
