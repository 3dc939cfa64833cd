"""The dispatchers of one changefeed that are left out, from the wish to their return: who, why, and when they can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.delivery.dispatcher import Dispatcher, Phase, asked_out
from penstock.delivery.keeper_client import DispatcherStart
from penstock.delivery.replays.outside import ExtraRange, Outside
from penstock.delivery.replays.retry import Replay
from penstock.delivery.spool import Spool
from penstock.delivery.writer import Writer
from penstock.errors import StaleRun
from penstock.log.position import Position


class Absences:
    """Not thread-safe, but for `retry`: its owner holds a lock around every call. `writer` gives the changefeed's, once there is one."""

    def __init__(self, changefeed: str, spool: Spool, writer: Callable[[], Writer | None]) -> None:
        self.retry = Replay()
        self._changefeed = changefeed
        self._spool = spool
        self._writer = writer
        self._wishes: dict[str, bool] = {}  # who is to be left out, or not any more: for those that are not loaded yet
        self.outside = Outside(self._is_left_out)

    def begin_run(self) -> None:
        self._wishes.clear()
        self.outside = Outside(self._is_left_out)
        self.retry.begun()

    def loaded(self, dispatcher: Dispatcher, start: DispatcherStart) -> None:
        """It is new in this run. Leaves it out where that is what somebody wants."""
        if self._wishes.get(dispatcher.id, start.left_out):
            writer = self._writer()
            assert writer is not None
            dispatcher.asked_out, dispatcher.phase = True, Phase.LEFT_OUT
            writer.note_left_out(dispatcher, asked_out(dispatcher))

    def leave_out(self, identity: str, *, out: bool) -> None:
        self._wishes[identity] = out
        writer = self._writer()
        known = writer.dispatchers.get(identity) if writer is not None else None
        if writer is None or known is None:
            return
        if out:
            writer.leave_out(known)
        else:
            known.asked_out, known.comes_back = False, known.left_out is not None

    def replay(self, starts: Mapping[str, tuple[Position, DispatcherStart]]) -> list[Dispatcher]:
        """Puts new ones in the place of these, all of them or none."""
        writer = self._writer()
        assert writer is not None
        for identity in starts:
            known = writer.dispatchers.get(identity)
            if known is None or known.asked_out or known.phase is not Phase.LEFT_OUT:
                raise StaleRun(f"{self._changefeed}: {identity} is not to be replayed", hint="begin a new run")
        made = []
        for identity, (start, facts) in starts.items():
            again = writer.dispatchers[identity].replay(facts, writer.sink.recall(facts))
            self.outside.begin(identity, facts.epoch, start)
            again.replayed_to = start
            self._spool.revive(identity)
            writer.add(again)
            made.append(again)
        self.retry.begun()
        return made

    def take(self, extra: ExtraRange) -> None:
        """The extra range counts from now on, for those of its dispatchers whose replay it is."""
        self.outside.take(extra)
        writer = self._writer()
        for identity in extra.epochs:
            if writer is not None and (replayed := self.outside.replayed(identity)) is not None:
                writer.dispatchers[identity].replayed_to = replayed

    def rejoin(self, dispatchers: Mapping[str, int]) -> None:
        writer = self._writer()
        for identity in self.outside.rejoin(dispatchers):
            assert writer is not None
            each = writer.dispatchers[identity]
            each.replaying, each.held_rows = False, 0

    def left_out(self) -> list[str]:
        writer = self._writer()
        return sorted(each.id for each in writer.left_out()) if writer is not None else []

    def pressure(self) -> dict[str, list[str] | None]:
        """What upstream must know of them."""
        return {"left_out": self.left_out(), "replay": self.coming_back()}

    def coming_back(self) -> list[str]:
        """Those that can be replayed now. Raises `StaleRun` where one of them did not come to a statement of several tables: the
        others stop there, and its replay would go beyond it. Only a new run can bring all of them to it."""
        writer = self._writer()
        if writer is None:
            return []
        ready = [
            each.id
            for each in writer.left_out()
            if each.phase is Phase.LEFT_OUT and (each.comes_back or (self.retry.due and not each.asked_out))
        ]
        if not self.outside.missed.isdisjoint(ready):
            raise StaleRun(f"{self._changefeed}: tables that stopped at a statement can go on", hint="begin a new run")
        return sorted(ready)

    def _is_left_out(self, identity: str) -> bool:
        writer = self._writer()
        known = writer.dispatchers.get(identity) if writer is not None else None
        return known is not None and known.left_out is not None
