"""`control.sock`: what delivery, the driver and the commands ask of a running `penstock run` (ARCHITECTURE.md,
"control.sock").

The server listens from the start of the run. A request about a changefeed whose keeper is not open yet, because the log
does not exist, waits for it, and gets `Unavailable` after `OPENING_SECONDS_MAX`. A request that lacks an argument, or
has one of the wrong type, gets `BadInput` with the argument's name.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from penstock.changefeed.facts import parse_seq
from penstock.changefeed.keeper import Keeper
from penstock.changefeed.maintainer import Maintainer
from penstock.delivery.keeper_client import Intent, LastRow, PauseWish
from penstock.errors import BadInput, Unavailable
from penstock.log.position import Position
from penstock.supervisor.status import RunStatus
from penstock.wire import Server, socket_path

OPENING_SECONDS_MAX = 20.0  # below the timeout of `wire.Client`, so that the caller gets the reason

Arguments = dict[str, Any]


def control_path(state_dir: Path) -> Path:
    return socket_path(state_dir / "run", "control")


class ControlServer:
    """Serves the changefeeds `names`, which change as the run's do. Each is answered for once `attach` has brought its
    maintainer, until `detach`."""

    def __init__(
        self,
        path: Path,
        names: Collection[str],
        status: Callable[[], RunStatus],
        *,
        ask_capture: Callable[[Arguments], Arguments] | None = None,
        pause_at_delivery: Callable[[str, PauseWish], None] = lambda _name, _wish: None,
        leave_out_at_delivery: Callable[[str, str, bool], None] = lambda _name, _dispatcher, _out: None,
        try_again: Callable[[str], bool] = lambda _name: False,
        reload: Callable[[], Arguments] = dict,
        forget: Callable[[str], Arguments] = lambda _name: {},
    ) -> None:
        self._names = names
        self._status = status
        self._ask_capture = ask_capture
        self._pause_at_delivery = pause_at_delivery
        self._leave_out_at_delivery = leave_out_at_delivery
        self._try_again = try_again
        self._pausing = threading.Lock()  # of tables: the keeper and delivery hear of two wishes in the same order
        self._maintainers: dict[str, Maintainer] = {}
        self._attached = threading.Condition()
        self._ending = False
        self._server = Server(
            path,
            {
                "begin_run": self._begin_run,
                "begin_replay": self._begin_replay,
                "published": self._published,
                "intent": self._intent,
                "done": self._done,
                "drained": self._drained,
                "dispatchers": self._dispatchers,
                "checkpoint": self._checkpoint,
                "settings": self._settings,
                "recovery_point": self._recovery_point,
                "resume": partial(self._pass_on, "resume"),
                "backfill": partial(self._pass_on, "backfill"),
                "pause": self._pause,
                "reload": lambda _arguments, _body: reload(),
                "forget": lambda arguments, _body: forget(_text(arguments, "changefeed")),
                "status": lambda _arguments, _body: self._status().model_dump(mode="json"),
            },
        )

    def attach(self, maintainer: Maintainer) -> None:
        with self._attached:
            self._maintainers[maintainer.keeper.name] = maintainer
            self._attached.notify_all()

    def detach(self, name: str) -> None:
        with self._attached:
            self._maintainers.pop(name, None)

    def end(self) -> None:
        """The run is about to end: requests do not wait for a keeper any longer."""
        with self._attached:
            self._ending = True
            self._attached.notify_all()

    def close(self) -> None:
        self.end()
        self._server.close()

    def _of(self, arguments: Arguments) -> Maintainer:
        name = arguments.get("changefeed")
        if name not in self._maintainers and name not in self._names:
            raise BadInput(f"there is no changefeed {name!r} in this run", hint=f"there are: {sorted(self._names)}")
        with self._attached:
            self._attached.wait_for(lambda: name in self._maintainers or self._ending, OPENING_SECONDS_MAX)
            if name not in self._maintainers:
                raise Unavailable(f"{name}: the log is not there yet", hint="capture makes it once the source answers")
            return self._maintainers[name]

    def _begin_run(self, arguments: Arguments, _body: memoryview) -> Arguments:
        return self._of(arguments).begin_run()

    def _begin_replay(self, arguments: Arguments, _body: memoryview) -> Arguments:
        dispatchers = _get(arguments, "dispatchers")
        if not isinstance(dispatchers, list):
            raise BadInput(f"dispatchers must be a list, not {dispatchers!r}")
        found = self._of(arguments).begin_replay(_text(arguments, "run"), [str(each) for each in dispatchers])
        return {"dispatchers": found}

    def _published(self, arguments: Arguments, _body: memoryview) -> Arguments:
        last = {
            str(dispatcher): LastRow(parse_seq(_get(row, "seq"), "last seq"), _text(row, "schema"), _text(row, "table"))
            for dispatcher, row in dict(_get(arguments, "last")).items()
        }
        self._of(arguments).published(
            _text(arguments, "run"),
            _position(arguments, "start"),
            _position(arguments, "end"),
            _integer(arguments, "commit_ts"),
            last,
        )
        return {}

    def _intent(self, arguments: Arguments, _body: memoryview) -> Arguments:
        intent = Intent(
            path=_text(arguments, "path"),
            first_seq=parse_seq(_get(arguments, "first_seq"), "first_seq"),
            last_seq=parse_seq(_get(arguments, "last_seq"), "last_seq"),
            length=_integer(arguments, "length"),
            checksum=_get(arguments, "checksum"),
            rows=_integer(arguments, "rows") if arguments.get("rows") is not None else 0,
        )
        self._of(arguments).intent(
            _text(arguments, "run"),
            _text(arguments, "dispatcher"),
            _integer(arguments, "epoch"),
            intent,
            replaces=arguments.get("replaces") is True,
        )
        return {}

    def _done(self, arguments: Arguments, _body: memoryview) -> Arguments:
        checkpoint = self._of(arguments).done(
            _text(arguments, "run"),
            _text(arguments, "dispatcher"),
            _integer(arguments, "epoch"),
            parse_seq(_get(arguments, "seq"), "seq"),
            _text(arguments, "path") if arguments.get("path") is not None else None,
        )
        return {"checkpoint_ts": checkpoint}

    def _drained(self, arguments: Arguments, _body: memoryview) -> Arguments:
        seq = parse_seq(_get(arguments, "seq"), "seq")
        drained = self._of(arguments).drained(_text(arguments, "run"), _text(arguments, "dispatcher"), seq)
        return {"drained": drained}

    def _dispatchers(self, arguments: Arguments, _body: memoryview) -> Arguments:
        facts = self._of(arguments).keeper.facts()
        return {"facts": {dispatcher: one.to_json() for dispatcher, one in facts.items()}}

    def _pause(self, arguments: Arguments, _body: memoryview) -> Arguments:
        """Pauses a changefeed, or lets it go on. Order: (1) durable; (2) delivery; each run of the changefeed tells it again. One
        that goes on tries again what stopped in it, too."""
        keeper, paused = self._of(arguments).keeper, _get(arguments, "paused") is True
        if arguments.get("table") is not None:
            with self._pausing:
                return self._pause_table(keeper, _text(arguments, "table"), paused=paused)
        before = keeper.paused_ms is not None
        self._pause_at_delivery(keeper.name, keeper.set_paused(paused))
        again = not paused and self._try_again(keeper.name)
        return {"paused": paused, "changed": before != paused, "since_ms": keeper.paused_ms, "again": again}

    def _pause_table(self, keeper: Keeper, table: str, *, paused: bool) -> Arguments:
        """The same of one table. Order: (1) durable; (2) delivery, which leaves it out, or has it replayed."""
        facts = keeper.facts()
        dispatcher = next((key for key, one in facts.items() if f"{one.schema}.{one.table}" == table), None)
        if dispatcher is None:
            near = difflib.get_close_matches(table, [f"{one.schema}.{one.table}" for one in facts.values()], 1)
            raise BadInput(
                f"{keeper.name} has nothing of a table {table!r} yet",
                hint=f"did you mean {near[0]}?" if near else "penstock dispatchers lists those that it has",
            )
        before = facts[dispatcher].left_out_ms > 0
        since_ms = keeper.leave_out(dispatcher, out=paused)
        self._leave_out_at_delivery(keeper.name, dispatcher, paused)
        return {"paused": paused, "changed": before != paused, "since_ms": since_ms or None, "again": False}

    def _pass_on(self, op: str, arguments: Arguments, _body: memoryview) -> Arguments:
        """Passes the request on to capture, the log's only writer. Its answer, or the error that it refuses with."""
        if self._ask_capture is None:
            raise Unavailable("there is no capture in this run")
        return self._ask_capture({**arguments, "op": op})

    def _checkpoint(self, arguments: Arguments, _body: memoryview) -> Arguments:
        keeper = self._of(arguments).keeper
        return {"checkpoint_ts": keeper.checkpoint_ts, "mark_delete": str(keeper.mark_delete)}

    def _recovery_point(self, arguments: Arguments, _body: memoryview) -> Arguments:
        return self._of(arguments).recovery_point(_text(arguments, "known"))

    def _settings(self, arguments: Arguments, _body: memoryview) -> Arguments:
        return {"versions": [version.to_json() for version in self._of(arguments).keeper.settings_versions]}


def _get(arguments: Arguments, name: str) -> Any:
    if name not in arguments:
        raise BadInput(f"the request lacks {name!r}")
    return arguments[name]


def _text(arguments: Arguments, name: str) -> str:
    value = _get(arguments, name)
    if not isinstance(value, str):
        raise BadInput(f"{name} must be text, not {value!r}")
    return value


def _integer(arguments: Arguments, name: str) -> int:
    value = _get(arguments, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadInput(f"{name} must be a whole number, not {value!r}")
    return value


def _position(arguments: Arguments, name: str) -> Position:
    value = _get(arguments, name)
    try:
        return Position.parse(str(value))
    except ValueError as error:
        raise BadInput(f"{name} {value!r} is no position", hint="a position is ledger:entry") from error
