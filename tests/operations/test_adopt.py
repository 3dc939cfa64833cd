"""`penstock run --adopt NAME`: a deleted or unmounted sink is refused, and so is another feed's; then one may be taken over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.delivery.keeper_client import DispatcherStart, Intent
from penstock.delivery.settings import FlushSettings, SinkSettings
from penstock.delivery.storage.opening import open_storage_sink
from penstock.delivery.storage.owner import ANY_LOG, adopt, claim
from penstock.delivery.storage.place import SinkPlace, open_place
from penstock.delivery.storage.sink import StorageSink
from penstock.encode import open_assembler
from penstock.errors import BadInput, Terminal
from penstock.files import REAL_FILES
from penstock.log.position import Seq
from penstock.operations.adopt import adopt_sinks
from penstock.operations.config.loading import load
from penstock.schema.schema_file import schema_file
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED, DeliveryWorld, data_payload, id_of, read_tables, stage_all, work


def place_of(root: Path) -> SinkPlace:
    return open_place(root.as_uri(), REAL_FILES)


def sink_of(root: Path, keeper: MemoryKeeper, clock: ManualClock) -> StorageSink:
    return open_storage_sink(
        CHANGEFEED,
        SinkSettings(url=root.as_uri(), format="canal-json"),
        keeper=keeper,
        assembler=open_assembler("canal-json"),
        schema_file=schema_file,
        log_uuid="u",
        files=REAL_FILES,
        clock=clock,
    )


class Life(DeliveryWorld):
    """Delivery with the real owner object. Its sink is opened when the run begins."""

    def deliver(self, run: str, first: int, last: int) -> None:
        delivery = self.open()
        made: list[StorageSink] = []

        def open_sink() -> StorageSink:
            assert isinstance(self.clock, ManualClock)
            made.append(sink_of(self.root, self.keeper, self.clock))
            return made[0]

        delivery._open_sink = open_sink
        try:
            incarnation = self.begin(delivery, run)
            named = stage_all(delivery, run, first, last, [data_payload("orders", first, last)])
            delivery.publish(run, incarnation, [named])
            self.clock.sleep(100)
            work(delivery)
            delivery.flush()
        finally:
            for sink in made:
                sink.close()


def lines(first: int, last: int) -> list[bytes]:
    return bytes(data_payload("orders", first, last).body).splitlines(True)


def adopt_for(root: Path, **changed: str | None) -> bool:
    settings = {"changefeed": CHANGEFEED, "log_uuid": "u", "format_name": "canal-json", **changed}
    return adopt(place_of(root), ManualClock(), **settings)  # type: ignore[arg-type]


def test_a_deleted_sink_is_refused_until_it_is_adopted(tmp_path: Path) -> None:
    root = tmp_path / "sink"
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    life.deliver("r1", 0, 3)
    life.deliver("r2", 4, 7)
    assert life.keeper.facts[id_of("orders")].last_path is not None
    shutil.rmtree(root)
    with pytest.raises(Terminal, match=r"it was deleted, or is not mounted\. Nothing was written") as refused:
        life.deliver("r3", 8, 9)
    assert f"penstock run --adopt {CHANGEFEED}" in str(refused.value.hint)
    assert not root.exists() or not [path for path in root.rglob("*") if path.is_file() and path.name != "lock"]
    assert adopt_for(root)
    assert not adopt_for(root)
    life.deliver("r3", 8, 9)
    assert read_tables(root) == {"orders": lines(8, 9)}  # numbers begin anew: readers stop at a hole
    life.deliver("r4", 10, 11)
    assert read_tables(root) == {"orders": lines(8, 11)}


def test_a_restored_sink_without_its_owner_object(tmp_path: Path) -> None:
    root = tmp_path / "sink"
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    life.deliver("r1", 0, 3)
    (root / "_penstock/owner.json").unlink()
    with pytest.raises(Terminal, match=r"no longer has _penstock/owner\.json"):
        life.deliver("r2", 4, 5)
    assert adopt_for(root)
    life.deliver("r2", 4, 5)
    assert read_tables(root) == {"orders": lines(0, 5)}


def open_file(life: Life, number: int, first: int, last: int) -> None:
    """As a crash leaves it: promised, and nothing of it at the sink."""
    payload = data_payload("orders", first, last)
    paths = [f"shop/orders/5/{payload.date}/CDC{n:020d}.json" for n in (number - 1, number)]
    intent = Intent(paths[1], payload.first_seq, payload.last_seq, 10, 1, last - first + 1)
    life.keeper.facts[id_of("orders")] = DispatcherStart(1, "shop", "orders", None, paths[0], intent)


def test_an_open_file_whose_predecessors_are_gone_is_refused(tmp_path: Path) -> None:
    """A reader of the index would wait at the hole for ever."""
    root = tmp_path / "sink"
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    life.deliver("r1", 0, 3)
    open_file(life, 7, 4, 5)
    with pytest.raises(Terminal, match="files that were written are gone") as refused:
        life.deliver("r2", 4, 5)
    assert "restore" in str(refused.value)


def test_a_sink_that_was_deleted_with_a_file_open(tmp_path: Path) -> None:
    """The intent is durable before the put finds the sink gone, so a file is open nearly always. In the adopted sink its rows
    go under the next number there."""
    root = tmp_path / "sink"
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    life.deliver("r1", 0, 3)
    open_file(life, 2, 4, 5)
    shutil.rmtree(root)
    with pytest.raises(Terminal, match="it was deleted, or is not mounted"):
        life.deliver("r2", 4, 5)
    assert adopt_for(root)
    life.deliver("r3", 4, 5)
    assert read_tables(root) == {"orders": lines(4, 5)}
    life.deliver("r4", 6, 7)
    assert read_tables(root) == {"orders": lines(4, 7)}


def test_an_adopted_sink_with_later_files_of_another_under_an_open_name(tmp_path: Path) -> None:
    """An index that is ahead of the open file names rows of somebody else there, not its own."""
    root = tmp_path / "sink"
    other = Life(root, flush=FlushSettings(size=1024, every=5))
    for entry in range(4):
        other.deliver(f"r{entry}", entry, entry)
    (root / "_penstock/owner.json").unlink()
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    open_file(life, 2, 4, 5)
    assert adopt_for(root)
    life.deliver("s1", 4, 5)
    assert read_tables(root) == {"orders": lines(0, 5)}


def test_a_sink_that_had_statements_alone_is_missed_too(tmp_path: Path) -> None:
    root = tmp_path / "sink"
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    life.keeper.facts[id_of("orders")] = DispatcherStart(1, "shop", "orders", Seq(1, 3, 0, 0), None, None)
    with pytest.raises(Terminal, match="it was deleted, or is not mounted"):
        life.deliver("r1", 4, 5)
    assert not root.exists()


def test_files_of_another_feed(tmp_path: Path) -> None:
    root = tmp_path / "sink"
    settings = {"changefeed": "old", "log_uuid": "v", "format_name": "canal-json"}
    before = claim(place_of(root), ManualClock(), **settings)
    before.close()
    life = Life(root, flush=FlushSettings(size=1024, every=5))
    with pytest.raises(BadInput, match="holds files of feed old") as refused:
        life.deliver("r1", 0, 1)
    assert f"--adopt {CHANGEFEED}" in str(refused.value.hint)
    with pytest.raises(BadInput, match="holds canal-json files of feed old"):
        adopt_for(root, format_name="csv")
    assert adopt_for(root, log_uuid=None)
    owner = json.loads((root / "_penstock/owner.json").read_text())
    assert (owner["changefeed"], owner["log_uuid"], owner["epoch"], owner["adopted"]) == (CHANGEFEED, ANY_LOG, 2, True)
    life.deliver("r1", 0, 1)
    owner = json.loads((root / "_penstock/owner.json").read_text())
    assert (owner["log_uuid"], owner["epoch"], owner["adopted"]) == ("u", 3, True)
    with pytest.raises(BadInput, match=f"holds files of feed {CHANGEFEED}"):
        claim(place_of(root), ManualClock(), **settings)


def test_from_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "penstock.yaml"
    config.write_text(
        f"state_dir: {tmp_path}/state\nsource: {{type: demo}}\nsinks:\n  raw: {{url: file://{tmp_path}/sink, format: csv}}\n"
    )
    loaded = load(config)
    with pytest.raises(BadInput, match="there is no sink 'row'"):
        adopt_sinks(loaded, ["row"])
    assert not (tmp_path / "sink").exists()
    assert adopt_sinks(loaded, ["raw"]) == ["raw"]
    assert adopt_sinks(loaded, ["raw"]) == []
