"""`penstock status --table`, `--metrics` and `penstock spool inspect` beside a real delivery server, and after its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.main import app
from penstock.delivery.server import DeliveryServer
from penstock.delivery.settings import DeliverySettings
from penstock.delivery.spool.segment_format import FILE_HEADER_BYTES, RECORD_HEADER_BYTES
from penstock.encode import open_assembler
from penstock.entries.stores import SCHEMA_HISTORY
from penstock.log import Log
from penstock.process import EXIT_CONFIGURATION, EXIT_DIFFERENT, EXIT_OK, EXIT_STOPPED
from penstock.schema.schema_file import schema_file
from penstock.state import BucketState
from tests.delivery.memory_keeper import MemoryKeeper
from tests.delivery.rig import CHANGEFEED, data_payload, id_of, stage_all, table_schema
from tests.support.waiting import wait_until


def penstock(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "200"})


def document(*arguments: object, code: int = EXIT_OK) -> dict[str, Any]:
    result = penstock(*arguments, "--json")
    assert result.exit_code == code, result.output
    return dict(json.loads(result.stdout))


class Flow:
    """A state directory with a log that knows the tables, a configuration, and a delivery server over it."""

    def __init__(self, root: Path) -> None:
        self.state_dir = root / "data"
        self.config = root / "penstock.yaml"
        self.config.write_text(f"version: 1\nstate_dir: {self.state_dir}\nsinks: {{{CHANGEFEED}: {{}}}}\n")
        with Log.open(self.state_dir / "log") as log:
            state = BucketState.open(log)
            store = state.store(SCHEMA_HISTORY)
            for table in ("orders", "items"):
                schema = table_schema(table, 5)
                store.write({schema.key: schema}).result()
            state.close()
        sink = {"url": f"file://{root / 'sink'}", "format": "canal-json", "flush": {"size": "1KiB", "every": 60}}
        self.settings = DeliverySettings.model_validate(
            {
                "state_dir": self.state_dir,
                "changefeeds": {CHANGEFEED: sink},
                "log_uuid": "u1",
                "spool_memory_low_bytes": 0,
            }
        )
        self.keeper = MemoryKeeper()
        self.server: DeliveryServer | None = None

    def start(self) -> None:
        sink = self.settings.changefeeds[CHANGEFEED]
        self.server = DeliveryServer(
            self.settings,
            keeper=self.keeper,
            assemblers={CHANGEFEED: open_assembler(sink.format, sink.format_options)},
            schema_file=schema_file,
            log_uuid=lambda: "u1",
        )
        delivery = self.server.delivery_of({"changefeed": CHANGEFEED})
        incarnation = delivery.begin_run("r1")["incarnation"]
        self.keeper.begin_run("r1")
        named = stage_all(delivery, "r1", 0, 199, [data_payload("orders", 0, 199), data_payload("items", 0, 1)])
        delivery.publish("r1", incarnation, [named])
        wait_until(lambda: delivery.status()["flushes"]["size"] == 1, "a file of shop.orders")

    def segments(self) -> list[Path]:
        return sorted((self.state_dir / "run" / "spool").rglob("*.seg"))


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[Flow]:
    world = Flow(tmp_path)
    yield world
    if world.server is not None:
        world.server.close()


def test_one_table_is_shown(flow: Flow) -> None:
    flow.start()
    status = ("status", "-c", flow.config, "--table")
    [orders] = document(*status, "shop.orders")["sinks"]
    assert (orders["changefeed"], orders["schema_name"], orders["table"]) == (CHANGEFEED, "shop", "orders")
    assert (orders["last_flush_reason"], orders["recent_flushes"]) == ("size", {"size": 1})
    assert (orders["batch_bytes"], orders["file_size_target"], orders["files"]) == (0, 1024, 1)
    text = penstock(*status, "shop.items").output
    assert "none in this run" in text and "(2 rows)" in text and id_of("items") in text
    assert "reason size" in penstock(*status, "shop.orders").output
    assert document(*status, "shop.nothing", code=EXIT_DIFFERENT)["sinks"] == []
    assert penstock(*status, "orders").exit_code == EXIT_CONFIGURATION
    metrics = penstock("status", "-c", flow.config, "--metrics")
    assert f'penstock_flush_total{{changefeed="{CHANGEFEED}",reason="size"}}' in metrics.stdout
    assert id_of("orders") not in metrics.stdout


def test_without_a_process_a_table_and_metrics_are_stopped(flow: Flow) -> None:
    assert document("status", "-c", flow.config, "--table", "shop.orders", code=EXIT_STOPPED)["sinks"] == []
    assert penstock("status", "-c", flow.config, "--table", "shop.orders").exit_code == EXIT_STOPPED
    assert penstock("status", "-c", flow.config, "--metrics").exit_code == EXIT_STOPPED


def test_the_spool_is_inspected_while_it_is_used_and_after_a_kill(flow: Flow) -> None:
    flow.start()

    def seen(code: int = EXIT_OK, *more: object) -> dict[str, Any]:
        [spool] = document("spool", "inspect", flow.state_dir, *more, code=code)["spools"]
        return dict(spool)

    wait_until(
        lambda: seen()["account"]["disk_items"] == 1 and len(flow.segments()) == 1, "the segment of shop.items alone"
    )
    [path] = flow.segments()
    spool = seen()
    [segment] = spool["segments"]
    assert (spool["sink"], segment["name"], segment["left"], segment["damage"]) == (CHANGEFEED, path.name, False, [])
    owner = {"dispatcher": id_of("items"), "table": "shop.items", "records": 1, "bytes": 20}
    assert owner in segment["dispatchers"]
    assert segment["incarnation"] == document("spool", "inspect", flow.state_dir)["running"]
    text = penstock("spool", "inspect", flow.state_dir).output
    assert "shop.items" in text and path.name in text and "left" not in text

    content = path.read_bytes()
    assert flow.server is not None
    flow.server.close()
    path.write_bytes(content + content[FILE_HEADER_BYTES:][:10])  # what a kill in the middle of a write leaves
    [segment] = seen()["segments"]
    assert (segment["left"], segment["unfinished_bytes"], segment["damage"]) == (True, 10, [])
    assert seen()["account"] is None
    [one] = seen(EXIT_OK, "--segment", path.name)["records"]
    assert (one["table"], one["offset"], one["bytes"], one["damage"]) == ("shop.items", FILE_HEADER_BYTES, 20, None)

    broken = bytearray(content)
    broken[FILE_HEADER_BYTES + RECORD_HEADER_BYTES + 3] ^= 1
    path.write_bytes(broken)
    [segment] = seen(EXIT_DIFFERENT)["segments"]
    assert segment["damage"][0]["offset"] == FILE_HEADER_BYTES and "checksum" in segment["damage"][0]["reason"]
    result = penstock("spool", "inspect", flow.state_dir)
    assert result.exit_code == EXIT_DIFFERENT and "✗" in result.output and "damaged" in result.output
    assert path.read_bytes() == broken


def test_what_there_is_not_is_said(flow: Flow, tmp_path: Path) -> None:
    assert "nothing is spilled" in penstock("spool", "inspect", flow.state_dir).output
    for arguments in ((tmp_path / "nowhere",), (flow.state_dir, "--segment", "00-0000000001-00000000.seg")):
        assert penstock("spool", "inspect", *arguments).exit_code == EXIT_CONFIGURATION
