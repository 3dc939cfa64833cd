"""The changefeeds of this driver. Each has a thread of its own (`ChangefeedRuns.run`), and comes and goes by itself.

What `penstock run` asks of the driver (requests on standard input, `penstock.process`):

| op | arguments → answer |
|---|---|
| `add` | changefeed, settings → {}. It begins. One that has failed begins again |
| `remove` | changefeed → {} once its jobs have ended. One that is not there is gone already |
| `begin_again` | changefeed → {}. Its run ends, and the next one starts from the keeper's facts: what stopped is tried again |

A terminal error ends one changefeed: it is said once, as a `failed` event, and the others go on. Only what concerns them
all ends the process: Spark's JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.errors import BadInput, PenstockError, Terminal, Unavailable
from penstock.process import EXIT_FAILED, EXIT_TRY_AGAIN, Event, Handler
from penstock.spark.failure import PipelineFailure, exit_code
from penstock.spark.jvm.engine import EngineLost

STOP_SECONDS_MAX = 20.0

Say = Callable[[dict[str, Any]], None]


class Runs(Protocol):
    """What is asked of `ChangefeedRuns`."""

    def run(self) -> None: ...

    def begin_again(self) -> None: ...


MakeRuns = Callable[[str, dict[str, Any], threading.Event], Runs]
"""(changefeed, its settings, set once it is to stop) → its runs. Raises `BadInput` for settings that make no sense."""


class _Following:
    """A changefeed that runs, or has failed."""

    def __init__(self, runs: Runs, stop: threading.Event, thread: threading.Thread) -> None:
        self.runs = runs
        self.stop = stop
        self.thread = thread


class Changefeeds:
    """Used by one thread. `lost` is called once Spark is gone, which nobody here can mend, with the exit code."""

    def __init__(self, make: MakeRuns, say: Say, lost: Callable[[int], None]) -> None:
        self._make = make
        self._say = say
        self._lost = lost
        self._following: dict[str, _Following] = {}

    @property
    def handlers(self) -> Mapping[str, Handler]:
        return {
            "add": lambda request: self.add(_name(request), request.get("settings")),
            "remove": lambda request: self.remove(_name(request)),
            "begin_again": lambda request: self.begin_again(_name(request)),
        }

    def add(self, name: str, settings: object) -> dict[str, Any]:
        known = self._following.get(name)
        if known is not None and known.thread.is_alive():
            raise BadInput(f"the changefeed {name!r} runs already", hint="remove it first")
        if not isinstance(settings, dict):
            raise BadInput(f"the changefeed {name!r} comes without settings")
        stop = threading.Event()
        runs = self._make(name, settings, stop)
        thread = threading.Thread(target=self._follow, args=(name, runs), name=f"runs-{name}", daemon=True)
        self._following[name] = _Following(runs, stop, thread)
        thread.start()
        return {}

    def remove(self, name: str) -> dict[str, Any]:
        following = self._following.pop(name, None)
        if following is not None:
            following.stop.set()
            following.thread.join(STOP_SECONDS_MAX)
            if following.thread.is_alive():
                self._following[name] = following
                raise Unavailable(f"{name}: its jobs did not end in {STOP_SECONDS_MAX:.0f} s", hint="ask again")
        return {}

    def begin_again(self, name: str) -> dict[str, Any]:
        following = self._following.get(name)
        if following is None or not following.thread.is_alive():
            raise BadInput(f"the changefeed {name!r} does not run")
        following.runs.begin_again()
        return {}

    def stop(self) -> None:
        """Ends all of them, for at most `STOP_SECONDS_MAX` each."""
        for following in self._following.values():
            following.stop.set()
        for following in self._following.values():
            following.thread.join(STOP_SECONDS_MAX)

    def _follow(self, name: str, runs: Runs) -> None:
        try:
            runs.run()
        except PipelineFailure as failure:
            self._failed(name, failure.error, exit_code(failure.error, failure.where))
        except EngineLost as error:
            lost = Unavailable("Spark's JVM ended", hint=str(error)[:200])
            self._say({"event": Event.ERROR, **lost.to_json()})
            self._lost(EXIT_TRY_AGAIN)
        except Exception as error:  # a mistake of ours; that of another changefeed goes on
            self._failed(name, Terminal(f"{type(error).__name__}: {error}"), EXIT_FAILED)

    def _failed(self, name: str, error: PenstockError, code: int) -> None:
        self._say({"event": Event.FAILED, "changefeed": name, "code": code, **error.to_json()})


def _name(request: dict[str, Any]) -> str:
    name = request.get("changefeed")
    if not isinstance(name, str) or not name:
        raise BadInput(f"the request {request.get('op')!r} names no changefeed")
    return name
