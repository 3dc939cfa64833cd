"""A state machine against a plain dict: put, delete, iterate during writes, checkpoint, crash, reopen, truncate.

The explorer looks at many more crashes; this test shrinks: a failure is the shortest program that shows it.
"""

from __future__ import annotations

import contextlib
import logging
import random
from functools import partial
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.errors import BadInput
from penstock.log import Pending, Position
from penstock.state import StateIterator, StateLost
from tests.crash.framework.promises import must
from tests.crash.state.world import Opened, StateWorld
from tests.crash.stepping import STEPS, stepping
from tests.support.budget import STATE_MODELS

KEYS = st.integers(0, 8)
VALUES = st.binary(max_size=40)


class StateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._stack.enter_context(stepping())
        logging.disable(logging.WARNING)
        self.world = StateWorld()
        self.opened: Opened
        self.iterations: list[tuple[StateIterator[Any], list[tuple[int, bytes]], list[tuple[int, bytes]]]] = []

    @initialize(trims=st.booleans())
    def begin(self, trims: bool) -> None:
        self.world.trims = trims
        self.opened = self.world.open()

    @property
    def facts(self) -> Any:
        return self.world.facts

    def _commit(self, edits: dict[int, bytes | None]) -> Pending[Position]:
        number = self.facts.next_number
        content = {**self.facts.newest, **edits, "number": number}
        self.facts.commit({key: value for key, value in content.items() if value is not None})
        pending = self.opened.commit(number, edits)
        pending.add_done_callback(partial(self._committed, number))
        return pending

    def _committed(self, number: int, done: Pending[Position]) -> None:
        if done.exception() is None:
            self.facts.acknowledge(number, done.result())

    @rule(key=KEYS, value=VALUES, wait=st.booleans())
    def put(self, key: int, value: bytes, wait: bool) -> None:
        pending = self._commit({key: value})
        if wait:
            pending.result()

    @rule(key=KEYS)
    def delete(self, key: int) -> None:
        self._commit({key: None})

    @rule(edits=st.dictionaries(KEYS, st.none() | VALUES, min_size=1))
    def write_a_batch(self, edits: dict[int, bytes | None]) -> None:
        self._commit(edits).result()

    @rule(key=KEYS)
    def get(self, key: int) -> None:
        must(self.opened.keys.get(key) == self.facts.newest.get(key), f"key {key} is not what was committed")
        must(self.opened.keys.contains(key) == (key in self.facts.newest), f"key {key} is there, or is not")

    @rule(first=KEYS, last=KEYS)
    def look_at_a_range(self, first: int, last: int) -> None:
        found = list(self.opened.keys.range(first, last))
        must(found == [pair for pair in self._pairs() if first <= pair[0] < last], "a range is not what was committed")

    def _pairs(self) -> list[tuple[int, bytes]]:
        return sorted((key, value) for key, value in self.facts.newest.items() if isinstance(key, int))

    @precondition(lambda self: len(self.iterations) < 3)
    @rule(steps=st.integers(0, 4))
    def begin_to_iterate(self, steps: int) -> None:
        iterator = self.opened.keys.items()
        seen = [pair for _, pair in zip(range(steps), iterator, strict=False)]
        self.iterations.append((iterator, seen, self._pairs()))

    @precondition(lambda self: self.iterations)
    @rule(leave=st.booleans())
    def iterate_to_the_end(self, leave: bool) -> None:
        iterator, seen, expected = self.iterations.pop(0)
        if leave:
            return  # dropped without closing it: what it pins must be given back
        must([*seen, *iterator] == expected, "an iteration is not of one moment")

    @rule()
    def checkpoint(self) -> None:
        self.opened.state.checkpoint()

    @rule()
    def merge(self) -> None:
        self.opened.state.engine.compact()

    @rule()
    def roll_and_trim(self) -> None:
        self.opened.log.roll()
        STEPS.pump()
        self.opened.log.trim()

    @rule(back=st.integers(0, 5))
    def truncate(self, back: int) -> None:
        STEPS.pump()
        numbers = [number for number in self.facts.chain[: self.facts.durable + 1] if number in self.facts.positions]
        if not numbers or self.facts.durable + 1 < len(self.facts.chain):
            return
        number = numbers[-min(back + 1, len(numbers))]
        self.facts.truncating = number
        try:
            self.opened.state.truncate(self.facts.positions[number])
        except (StateLost, BadInput):  # its state, or the entry itself, was trimmed
            self.facts.truncating = None
            return
        self.facts.truncated(number)

    @rule()
    def reopen(self) -> None:
        self._end_iterations()
        self.opened.close()
        STEPS.reset()
        self.opened = self.world.open(follower=True)

    @rule(seed=st.integers(0, 1 << 32))
    def crash(self, seed: int) -> None:
        self._end_iterations()
        crashed = self.world.crash(random.Random(seed))
        self.world.files.cut_power()
        STEPS.reset()
        self.world = crashed
        self.opened = self.world.open()

    def _end_iterations(self) -> None:
        for iterator, _, _ in self.iterations:
            iterator.close()
        self.iterations.clear()

    @invariant()
    def the_live_state_is_the_dict(self) -> None:
        if hasattr(self, "opened"):
            must(self.opened.content() == self.facts.newest, "the live state is not what was committed")

    def teardown(self) -> None:
        self._end_iterations()
        self._stack.close()
        logging.disable(logging.NOTSET)


TestStateMachine = StateMachine.TestCase
TestStateMachine.settings = settings(
    max_examples=STATE_MODELS, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
