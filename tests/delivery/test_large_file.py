"""A file of 300 MiB is written with a small buffer: delivery joins what tasks encoded, one payload at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.delivery.settings import FlushSettings
from penstock.objects import open_objects
from tests.delivery.rig import DeliveryWorld, data_payload, id_of, stage_all, work

_SCRIPT = """
import json, resource, sys
from pathlib import Path
from penstock.delivery.settings import FlushSettings
from penstock.delivery.spool import Disk, SpoolLimits
from tests.delivery.rig import DeliveryWorld, data_payload, id_of, stage_all, work
from dataclasses import replace
MIB = 1 << 20
root = Path(sys.argv[1])
limits = SpoolLimits(
    high_bytes=1 << 30, low_bytes=1 << 29, quota_bytes=1 << 30, memory_high_bytes=24 * MIB, memory_low_bytes=8 * MIB
)
world = DeliveryWorld(root / "sink", limits=limits, disk=Disk(root / "spool", "0" * 32))
world.flush = FlushSettings(size=512 * MIB, every=60)
delivery = world.open()
incarnation = world.begin(delivery, "r")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
for n in range(300):
    body = (n % 251).to_bytes(1, "big") * (MIB - 1) + b"\\n"
    payload = replace(data_payload("orders", n, n), body=body)
    delivery.publish("r", incarnation, [stage_all(delivery, "r", n, n, [payload])])
    while delivery.spool.step():
        pass
world.clock.sleep(100)
work(delivery)
facts = world.keeper.facts[id_of("orders")]
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"path": facts.last_path, "grown": after - before, "held": delivery.spool.bytes}))
"""


def test_a_file_of_300_mib(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    file = tmp_path / "sink" / found["path"]
    assert file.stat().st_size == 300 << 20
    with file.open("rb") as content:
        for n in range(300):
            block = content.read(1 << 20)
            assert (
                block[0] == n % 251 and block[-1:] == b"\n" and block[: (1 << 20) - 1].count(block[:1]) == (1 << 20) - 1
            )
    assert found["held"] == 0
    assert found["grown"] < 96 << 20, found  # the spool's memory, and a few payloads


@pytest.mark.s3
def test_a_large_file_in_s3_after_a_process_died_in_its_upload(s3_url: str, tmp_path: Path) -> None:
    """The intent is open and half of the file was sent: the next owner ends that upload, and writes the file once."""
    objects = open_objects(s3_url)
    world = DeliveryWorld(tmp_path, store=objects, flush=FlushSettings(size=64 << 20, every=5))
    payloads = [
        replace(data_payload("orders", n, n), body=bytes([65 + n]) * ((1 << 20) - 1) + b"\n") for n in range(24)
    ]

    class Died(BaseException): ...

    def die(name: str) -> None:
        if name == "after intent":
            raise Died

    def live(run: str) -> None:
        delivery = world.open()
        incarnation = world.begin(delivery, run)
        delivery.publish(run, incarnation, [stage_all(delivery, run, 0, 23, payloads)])
        world.clock.sleep(100)
        work(delivery)
        delivery.flush()

    world.keeper.hook = die
    with pytest.raises(Died):
        live("r1")
    intent = world.keeper.facts[id_of("orders")].intent
    assert intent is not None and intent.length == 24 << 20
    child = subprocess.Popen([sys.executable, "-c", _HALF, s3_url, intent.path], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"half\n"
    time.sleep(1.0)
    child.kill()
    child.wait()
    child.stdout.close()
    assert objects.size(intent.path) is None
    world.keeper.hook = lambda _name: None
    ended: list[int] = []
    end_uploads = objects.end_uploads
    objects.end_uploads = lambda name: ended.append(end_uploads(name)) or ended[-1]  # type: ignore[method-assign, func-returns-value]
    live("r2")
    assert ended[0] == 1 and end_uploads(intent.path) == 0
    assert objects.size(intent.path) == 24 << 20
    assert objects.get(intent.path, 23 << 20, 3) == b"XXX"
    assert world.keeper.facts[id_of("orders")].last_path == intent.path


_HALF = """
import sys, time
from penstock.objects import open_objects
def parts():
    for number in range(64):
        yield bytes([number]) * (1 << 20)
        if number == 40:
            print("half", flush=True)
            time.sleep(600)
open_objects(sys.argv[1]).put_stream(sys.argv[2], parts())
"""
