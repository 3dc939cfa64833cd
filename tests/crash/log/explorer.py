"""The crash explorer of the log: how a crashed log is opened, checked and gone on with."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

from tests.crash.framework.explorer import Explorer
from tests.crash.framework.promises import Violation
from tests.crash.log.program import run_program
from tests.crash.log.world import NAMES, PASSING, LogWorld, small_limits
from tests.crash.stepping import stepping

_GO_ON_SHARE = 0.15  # of the states: appended to, closed and, some of them, opened once more
_LOOKS = ((), (), (), ("a",), ("b",), (PASSING,))  # which cursors are opened: most of the cost is theirs


@contextlib.contextmanager
def _surroundings() -> Iterator[None]:
    with stepping(), small_limits():
        yield


def _recover(world: LogWorld, rng: random.Random) -> None:
    facts = world.facts
    facts.payloads = facts.payloads[:]  # other worlds share it
    go_on = rng.random() < _GO_ON_SHARE
    names = (*NAMES, PASSING) if go_on else rng.choice(_LOOKS)
    opened = world.open(names, with_state=go_on or rng.random() < 0.2)
    if not go_on:
        return
    number = facts.submit(b"%d|after" % len(facts.payloads))
    facts.acknowledge(number, position := opened.append(number, facts.payloads[number]).result())
    if bytes(next(iter(opened.reader.read(position, position))).data) != facts.payloads[number]:
        raise Violation("what was appended after the crash is not read back")
    if rng.random() < 0.5:
        version = facts.cursors[PASSING].send(frozenset(facts.durable))
        opened.cursors[PASSING].clear_backlog().result()
        facts.confirm(facts.cursors[PASSING], version)
    opened.close()
    if rng.random() < 0.3:
        world.open(names).close()


EXPLORER = Explorer("log", "the log", LogWorld, run_program, _recover, _surroundings)
