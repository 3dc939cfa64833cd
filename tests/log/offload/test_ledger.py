"""An offloaded ledger as a file: any sequence of reads gives the bytes of the ledger, and a pass asks the store seldom."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from penstock.files import Buffer
from penstock.log.frames.format import crc32c
from penstock.log.offload import ledger as offloaded
from penstock.log.offload.format import OffloadIndex, part_name
from penstock.log.offload.ledger import OffloadedLedger

LOG, ATTEMPT, BLOCK = UUID(int=7), "ab" * 16, 256


class Counted:
    """Objects in a dictionary; how often it was asked."""

    url = "memory"

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.asked = 0

    def put(self, name: str, data: Buffer) -> None:
        self.held[name] = bytes(data)

    def get(self, name: str, offset: int, size: int) -> bytes:
        self.asked += 1
        return self.held[name][offset : offset + size]

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.held.pop(name, None)

    def list(self, directory: str) -> list[str]:
        return sorted(name for name in self.held if name.startswith(f"{directory}/"))


def ledger(data: bytes, footer: bytes, part_bytes: int) -> tuple[OffloadedLedger, Counted]:
    store = Counted()
    for part, at in enumerate(range(0, len(data), part_bytes)):
        store.put(part_name(LOG, 1, ATTEMPT, part), data[at : at + part_bytes])
    checksums = [crc32c(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK)]
    index = OffloadIndex(LOG, ATTEMPT, 1, 1, len(data), part_bytes, BLOCK, checksums, footer)
    return OffloadedLedger(store, OffloadIndex.decode(index.encode(), "")), store


@pytest.mark.parametrize("seed", range(40))
def test_any_reads_give_the_bytes_of_the_ledger(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offloaded, "_FETCH_BYTES_MIN", 512)
    monkeypatch.setattr(offloaded, "_FETCH_BYTES_MAX", 4096)
    rng = random.Random(seed)
    data, footer = rng.randbytes(rng.randrange(1, 9000)), rng.randbytes(rng.randrange(200))
    file, _ = ledger(data, footer, BLOCK * rng.randrange(1, 6))
    whole, at = data + footer, 0
    assert file.size() == len(whole)
    for _ in range(80):
        offset = at if rng.random() < 0.6 else rng.randrange(len(whole) + 50)
        size = rng.randrange(700)
        found = file.read_at(offset, size)
        assert found == whole[offset : offset + size], f"seed {seed}: {size} bytes at {offset}"
        at = offset + len(found)


def test_a_pass_asks_seldom_and_a_jump_fetches_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offloaded, "_FETCH_BYTES_MIN", 512)
    monkeypatch.setattr(offloaded, "_FETCH_BYTES_MAX", 8192)
    data = random.Random(1).randbytes(100_000)
    file, store = ledger(data, b"", 1 << 20)
    assert b"".join(file.read_at(at, 100) for at in range(0, len(data), 100)) == data
    assert store.asked < 25
    file, store = ledger(data, b"", 1 << 20)
    fetched = 0
    get = store.get

    def counted(name: str, offset: int, size: int) -> bytes:
        nonlocal fetched
        fetched += size
        return get(name, offset, size)

    monkeypatch.setattr(store, "get", counted)
    for at in range(90_000, 0, -9_000):
        file.read_at(at, 100)
    assert fetched <= 10 * 2 * BLOCK
