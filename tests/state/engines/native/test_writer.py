"""Runs with keys that are easily missorted, and with records larger than the writer's buffer."""

from __future__ import annotations

import random

from penstock.log import StateChange
from tests.state.engines.native.memory import at
from tests.state.engines.opener import Opener


def test_keys_that_a_sort_could_mistake(native: Opener) -> None:
    """Ties in the first eight bytes, zero bytes at the end, prefixes of each other, many duplicates of a long start."""
    chosen = random.Random(2)
    starts = [b"", b"\x00", b"same eight", b"same eight bytes and more"]
    keys = {chosen.choice(starts) + bytes(chosen.choices((0, 1, 255), k=chosen.randrange(12))) for _ in range(5000)}
    engine = native()
    engine.apply([StateChange(1, key, b"v") for key in keys])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, key, b"w") for key in chosen.sample(sorted(keys), 500)])
    engine.write(engine.freeze(), at(1))
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(1)] == sorted(keys)
    engine.compact()
    with engine.create_snapshot() as snapshot:
        assert [key for key, _ in snapshot.iterate(1)] == sorted(keys)
        for key in chosen.sample(sorted(keys), 300):
            assert next(snapshot.iterate(1, key)) == (key, engine.get(1, key))


def test_records_larger_than_the_buffer(native: Opener) -> None:
    engine = native()
    large = random.Random(1).randbytes(9 << 20)
    engine.apply([StateChange(1, b"a", b"small"), StateChange(1, b"b", large), StateChange(1, b"c", b"small")])
    engine.write(engine.freeze(), at(0))
    engine.apply([StateChange(1, b"d", large[::-1])])
    engine.write(engine.freeze(), at(1))
    engine.write(engine.freeze(), at(2))
    engine.compact()
    engine.close()
    again = native(verify=True)
    assert (again.get(1, b"b"), again.get(1, b"d")) == (large, large[::-1])
    assert len(list(native.directory.glob("*.run"))) == 1
