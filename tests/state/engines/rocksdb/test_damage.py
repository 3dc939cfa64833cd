"""Damage in files of RocksDB is found, or changes nothing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from penstock.log import Position, StateChange
from penstock.state.engines.opening import open_engine
from tests.state.engines.native.memory import at


def test_flips_in_files_of_rocksdb_are_never_served(tmp_path: Path) -> None:
    """RocksDB has checksums of its own. Some of its bytes are never read, so a flip may also change nothing."""
    chosen = random.Random(5)
    good = tmp_path / "good"
    engine = open_engine("rocksdb", good)
    states: dict[Position | None, dict[bytes, bytes]] = {None: {}}
    model: dict[bytes, bytes] = {}
    for entry in (1, 2):
        changes = [StateChange(1, b"%d-%03d" % (entry, n), chosen.randbytes(20)) for n in range(100)]
        engine.apply(changes)
        engine.write(engine.freeze(), at(entry))
        model |= {change.key: change.value or b"" for change in changes}
        states[at(entry)] = dict(model)
    engine.close()
    detected = 0
    for number in range(40):
        bad = tmp_path / f"bad-{number}"
        shutil.copytree(good, bad)
        paths = sorted(
            p for p in bad.glob("rocksdb/checkpoint-*/*") if p.suffix == ".sst" or p.name[:4] in ("CURR", "MANI")
        )
        path = chosen.choice(paths)
        raw = bytearray(path.read_bytes())
        raw[chosen.randrange(len(raw))] ^= 1 << chosen.randrange(8)
        path.write_bytes(raw)
        opened_bad = open_engine("rocksdb", bad, verify=True)
        detected += bool(opened_bad.damaged)
        with opened_bad.create_snapshot() as snapshot:
            assert dict(snapshot.iterate(1)) == states[opened_bad.position]
        opened_bad.close()
        shutil.rmtree(bad)
    assert detected > 20
