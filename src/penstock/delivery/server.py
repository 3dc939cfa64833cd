"""Serves the delivery of every changefeed on `delivery.sock` (ARCHITECTURE.md has the table of operations)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.keeper_client import KeeperApi
from penstock.delivery.payload import parse_stage
from penstock.delivery.settings import DeliverySettings, SinkSettings, local_directory
from penstock.delivery.spool import SpoolLimits
from penstock.delivery.staging import PublishRange
from penstock.delivery.storage.checkpoint import CheckpointFile
from penstock.delivery.storage.layout import layout_of
from penstock.delivery.storage.owner import Claim, claim
from penstock.delivery.storage.store import LocalStore
from penstock.delivery.target import Assembler, SchemaFile, Target
from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.files.private import make_private_directory
from penstock.wire import Server, socket_path

SOCKET_NAME = "delivery"


class DeliveryServer:
    """Serves from construction until `close`. Each server is a new incarnation; publishes to an older one are
    refused."""

    def __init__(
        self,
        settings: DeliverySettings,
        *,
        keeper: KeeperApi,
        formats: Mapping[str, Assembler],
        schema_file: SchemaFile,
        log_uuid: Callable[[], str],
        files: Files = REAL_FILES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._settings = settings
        self._keeper = keeper
        self._formats = formats
        self._schema_file = schema_file
        self._log_uuid = log_uuid
        self._files = files
        self._clock = clock
        self._claims: list[Claim] = []
        self._deliveries = {name: self._delivery(name, sink) for name, sink in settings.changefeeds.items()}
        directory = settings.state_dir / "run"
        make_private_directory(directory)
        self.path: Path = socket_path(directory, SOCKET_NAME)
        self._server = Server(
            self.path,
            {
                "begin_run": self._begin_run,
                "stage": self._stage,
                "publish": self._publish,
                "pressure": lambda arguments, _: self.delivery_of(arguments).pressure(),
                "flush": self._flush,
                "status": self._status,
            },
        )

    def delivery_of(self, arguments: dict[str, Any]) -> ChangefeedDelivery:
        name = arguments.get("changefeed")
        if name not in self._deliveries:
            raise BadInput(
                f"delivery knows no changefeed {name!r}", hint=f"known: {', '.join(sorted(self._deliveries))}"
            )
        return self._deliveries[str(name)]

    def close(self, drain_seconds: float = 0.0) -> bool:
        """Accepts nothing more, drains every changefeed for at most `drain_seconds`, ends. False if something was
        left."""
        self._server.close()
        drained: list[bool] = []
        threads = [
            threading.Thread(target=lambda each=each: drained.append(each.close(drain_seconds)), daemon=True)
            for each in self._deliveries.values()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for each in self._claims:
            each.close()
        return len(drained) == len(threads) and all(drained)

    def _delivery(self, name: str, sink: SinkSettings) -> ChangefeedDelivery:
        return ChangefeedDelivery(
            name,
            incarnation=self.incarnation,
            keeper=self._keeper,
            open_target=lambda: self._open_target(name, sink),
            flush=sink.flush,
            limits=SpoolLimits(self._settings.spool_high_bytes, self._settings.spool_low_bytes),
            clock=self._clock,
            writers=self._settings.writers,
        )

    def _open_target(self, name: str, sink: SinkSettings) -> tuple[Target, CheckpointFile]:
        root = local_directory(sink.url)
        layout = layout_of(sink.format)
        self._claims.append(
            claim(root, self._files, self._clock, changefeed=name, log_uuid=self._log_uuid(), format_name=sink.format)
        )
        store = LocalStore(root, self._files)
        target = Target(
            name,
            layout=layout,
            assembler=self._formats[sink.format],
            store=store,
            keeper=self._keeper,
            schema_file=self._schema_file,
        )
        return target, CheckpointFile(store, self._clock, name)

    # ---- delivery.sock

    def _begin_run(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        delivery = self.delivery_of(arguments)
        if not arguments.get("run"):
            raise BadInput("begin_run: the argument 'run' is missing")
        return delivery.begin_run(str(arguments["run"]))

    def _stage(self, arguments: dict[str, Any], body: memoryview) -> dict[str, Any]:
        key, payload = parse_stage(arguments, body)
        self.delivery_of(arguments).stage(key, payload)
        return {}

    def _publish(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        delivery = self.delivery_of(arguments)
        named = [PublishRange.from_json(value) for value in arguments.get("ranges") or []]
        accepted = delivery.publish(str(arguments.get("run")), str(arguments.get("incarnation")), named)
        return {"accepted": accepted}

    def _flush(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        timeout = arguments.get("timeout_seconds")
        self.delivery_of(arguments).flush(float(timeout) if timeout is not None else None)
        return {}

    def _status(self, _arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        changefeeds = {name: delivery.status() for name, delivery in self._deliveries.items()}
        return {"incarnation": self.incarnation, "changefeeds": changefeeds}
