"""Serves the delivery of every changefeed on `delivery.sock` (ARCHITECTURE.md has the table of operations)."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.delivery.changefeed_delivery import ChangefeedDelivery
from penstock.delivery.keeper_client import DispatcherStart, KeeperApi, PauseWish
from penstock.delivery.payload import parse_stage
from penstock.delivery.replays.outside import ExtraRange, epochs_from_json
from penstock.delivery.settings import DeliverySettings, SinkSettings, spool_directory
from penstock.delivery.spool import Disk, delete_segments
from penstock.delivery.staging import PublishRange
from penstock.delivery.storage.ddl import SchemaFile
from penstock.delivery.storage.opening import open_storage_sink
from penstock.delivery.storage.sink import StorageSink
from penstock.encode import Assembler
from penstock.errors import BadInput
from penstock.files import REAL_FILES, Files
from penstock.files.private import make_private_directory
from penstock.log.position import Position
from penstock.observe.metrics import METRICS
from penstock.wire import Server, socket_path

_LOG = logging.getLogger(__name__)

SOCKET_NAME = "delivery"


class DeliveryServer:
    """Serves from construction until `close`. Each server is a new incarnation; publishes to an older one are
    refused."""

    def __init__(
        self,
        settings: DeliverySettings,
        *,
        keeper: KeeperApi,
        assemblers: Mapping[str, Assembler],
        schema_file: SchemaFile,
        log_uuid: Callable[[], str],
        files: Files = REAL_FILES,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.incarnation = uuid.uuid4().hex
        self._settings = settings
        self._keeper = keeper
        self._assemblers = dict(assemblers)  # by changefeed
        self._schema_file = schema_file
        self._log_uuid = log_uuid
        self._files = files
        self._clock = clock
        directory = settings.state_dir / "run"
        make_private_directory(directory)  # first: the spools' directories are made below it
        self._delete_left_segments()
        self._deliveries = {name: self._delivery(name, sink) for name, sink in settings.changefeeds.items()}
        self._removed_seconds = 0.0  # of writes, of changefeeds that were removed
        self.path: Path = socket_path(directory, SOCKET_NAME)
        self._server = Server(
            self.path,
            {
                "begin_run": self._begin_run,
                "stage": self._stage,
                "dead_letter": self._dead_letter,
                "publish": self._publish,
                "pressure": lambda arguments, _: self.delivery_of(arguments).pressure(arguments.get("run")),
                "pause": self._pause,
                "leave_out": self._leave_out,
                "replay": self._replay,
                "flush": self._flush,
                "status": self._status,
                "table": self._table,
                "spools": self._spools,
                "metrics": lambda _arguments, _: {"text": METRICS.render().decode()},
            },
        )

    @property
    def write_seconds(self) -> float:
        """How long writes took so far, the sum over all threads."""
        return self._removed_seconds + sum(map(_write_seconds, self._deliveries.values()))

    def delivery_of(self, arguments: dict[str, Any]) -> ChangefeedDelivery:
        name = arguments.get("changefeed")
        if name not in self._deliveries:
            raise BadInput(
                f"delivery knows no changefeed {name!r}", hint=f"known: {', '.join(sorted(self._deliveries))}"
            )
        return self._deliveries[str(name)]

    def add(self, name: str, sink: SinkSettings, assembler: Assembler) -> None:
        """Serves one changefeed more. One that is there already stays as it is."""
        if name not in self._deliveries:
            self._assemblers[name] = assembler
            self._deliveries = {**self._deliveries, name: self._delivery(name, sink)}

    def remove(self, name: str, drain_seconds: float = 0.0) -> bool:
        """Takes nothing more for a changefeed and drains it for at most `drain_seconds`; the others go on. False if something
        was left, which stays in the log. One that is not there is gone already."""
        delivery = self._deliveries.get(name)
        self._deliveries = {other: each for other, each in self._deliveries.items() if other != name}
        if delivery is None:
            return True
        drained = delivery.close(drain_seconds)
        self._removed_seconds += _write_seconds(delivery)
        return drained

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
        return len(drained) == len(threads) and all(drained)

    def _delete_left_segments(self) -> None:
        """Those of changefeeds that are not configured any more: nobody else would ever delete them."""
        mine = {spool_directory(self._settings.state_dir, name) for name in self._settings.changefeeds}
        root = spool_directory(self._settings.state_dir, "x").parent
        for name in REAL_FILES.list(root):
            if root / name in mine:
                continue
            try:
                delete_segments(REAL_FILES, root / name)
            except OSError as error:
                _LOG.warning("segments of an old spool are not deleted", extra={"reason": str(error)})

    def _delivery(self, name: str, sink: SinkSettings) -> ChangefeedDelivery:
        return ChangefeedDelivery(
            name,
            incarnation=self.incarnation,
            keeper=self._keeper,
            open_sink=lambda: self._open_sink(name, sink),
            flush=sink.flush,
            limits=self._settings.spool_limits(),
            disk=Disk(spool_directory(self._settings.state_dir, name), self.incarnation),
            clock=self._clock,
            writers=self._settings.writers,
        )

    def _open_sink(self, name: str, sink: SinkSettings) -> StorageSink:
        return open_storage_sink(
            name,
            sink,
            keeper=self._keeper,
            assembler=self._assemblers[name],
            schema_file=self._schema_file,
            log_uuid=self._log_uuid(),
            files=self._files,
            clock=self._clock,
        )

    # ---- delivery.sock

    def _begin_run(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        delivery = self.delivery_of(arguments)
        if not arguments.get("run"):
            raise BadInput("begin_run: the argument 'run' is missing")
        _set_paused(delivery, arguments)
        return delivery.begin_run(str(arguments["run"]))

    def _pause(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        _set_paused(self.delivery_of(arguments), arguments)
        return {}

    def _leave_out(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        if not arguments.get("dispatcher"):
            raise BadInput("leave_out: the argument 'dispatcher' is missing")
        self.delivery_of(arguments).leave_out(str(arguments["dispatcher"]), out=arguments.get("out") is True)
        return {}

    def _replay(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        try:
            starts = {
                str(dispatcher): (Position.parse(value["start"]), DispatcherStart.from_json(value["facts"]))
                for dispatcher, value in dict(arguments["dispatchers"]).items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"replay: its dispatchers cannot be read: {error!r}") from error
        self.delivery_of(arguments).replay(str(arguments.get("run")), starts)
        return {}

    def _stage(self, arguments: dict[str, Any], body: memoryview) -> dict[str, Any]:
        key, payload = parse_stage(arguments, body)
        self.delivery_of(arguments).stage(key, payload)
        return {}

    def _dead_letter(self, arguments: dict[str, Any], body: memoryview) -> dict[str, Any]:
        names = str(arguments.get("schema") or ""), str(arguments.get("table") or "")
        self.delivery_of(arguments).dead_letter(str(arguments.get("run")), *names, str(arguments.get("seq")), body)
        return {}

    def _publish(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        delivery = self.delivery_of(arguments)
        named = [PublishRange.from_json(value) for value in arguments.get("ranges") or []]
        extras = [ExtraRange.from_json(value) for value in arguments.get("extras") or []]
        rejoin = epochs_from_json(arguments.get("rejoin") or {})
        run, incarnation = str(arguments.get("run")), str(arguments.get("incarnation"))
        accepted = delivery.publish(run, incarnation, named, extras, rejoin)
        return {"accepted": accepted}

    def _flush(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        timeout = arguments.get("timeout_seconds")
        self.delivery_of(arguments).flush(float(timeout) if timeout is not None else None)
        return {}

    def _status(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        every = arguments.get("all_dispatchers") is not False
        changefeeds = {name: each.status(every=every) for name, each in self._deliveries.items()}
        return {"incarnation": self.incarnation, "changefeeds": changefeeds}

    def _spools(self, _arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        spools = {
            name: {
                **each.spool.totals()._asdict(),
                "quota_bytes": each.spool.limits.quota_bytes,
                "alarm": each.spool.alarm,
            }
            for name, each in self._deliveries.items()
        }
        return {"incarnation": self.incarnation, "spools": spools}

    def _table(self, arguments: dict[str, Any], _body: memoryview) -> dict[str, Any]:
        schema, table = arguments.get("schema"), arguments.get("table")
        if not schema or not table:
            raise BadInput("table: the arguments 'schema' and 'table' are needed")
        found = [each for delivery in self._deliveries.values() for each in delivery.table(str(schema), str(table))]
        return {"incarnation": self.incarnation, "dispatchers": found}


def _set_paused(delivery: ChangefeedDelivery, arguments: dict[str, Any]) -> None:
    delivery.set_paused(PauseWish(arguments.get("paused") is True, int(arguments.get("number") or 0)))


def _write_seconds(delivery: ChangefeedDelivery) -> float:
    return delivery.writer.stats.write_seconds if delivery.writer is not None else 0.0
