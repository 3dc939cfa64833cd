"""What was answered or refused is let go: payloads, the appends before it, and the frames of those who asked."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.errors import PenstockError, StorageFailed
from penstock.files.memory import DiskFault
from penstock.log import Log, LogSettings, Pending, StateChange, Terminated
from penstock.state import BucketState, StateDescriptor, codecs
from tests.support.worlds import LogInMemory

SETTINGS = LogSettings(preallocate_bytes=0, maintenance_interval_seconds=0, ledger_switches_max=0)


@pytest.fixture
def world() -> Iterator[LogInMemory]:
    world = LogInMemory(SETTINGS, 1)
    yield world
    world.log.close()


def chain_length(pending: Any) -> int:
    length = 0
    while pending is not None:
        pending, length = pending.after, length + 1
    return length


def test_a_chain_of_commits_keeps_none_of_them(world: LogInMemory) -> None:
    state = BucketState.open(world.log)
    store = state.get_or_create_store(StateDescriptor("position", "capture", codecs.text, codecs.json))
    answers: list[Pending[Any]] = []
    for number in range(50):
        change = state.begin()
        store.put(change, "k", number)
        answers.append(state.commit(change, bytes(1000)))
    answers[-1].result()
    assert [chain_length(answer) for answer in answers] == [1] * 50
    assert [answer.data for answer in answers] == [None] * 50  # type: ignore[attr-defined]


def frames_of(error: BaseException) -> int:
    count, trace = 0, error.__traceback__
    while trace is not None:
        count, trace = count + 1, trace.tb_next
    return count


class Payload(bytearray):
    """Something that a weak reference can watch."""


def refused(log: Log) -> weakref.ref[Payload]:
    payload = Payload(1000)
    with pytest.raises(PenstockError):
        log.append(payload).result(10)
    return weakref.ref(payload)


def test_refused_appends_leave_nothing_in_the_error_that_is_kept(world: LogInMemory) -> None:
    world.log.terminate()
    payloads = [refused(world.log) for _ in range(10)]
    gc.collect()
    assert [payload() for payload in payloads] == [None] * 10
    kept = world.log._parts.appender.error
    assert isinstance(kept, Terminated)
    assert frames_of(kept) == 0


def test_failed_appends_hold_no_payload(world: LogInMemory) -> None:
    world.files.fail_at(world.files.operations + 1, DiskFault.ENOSPC)
    payload = Payload(1000)
    answer = world.log.append(payload)
    watched = weakref.ref(payload)
    del payload
    for _ in range(3):
        with pytest.raises(StorageFailed) as raised:
            answer.result(10)
        assert frames_of(raised.value) <= 3
    del raised
    gc.collect()
    assert watched() is None


def test_an_answered_append_keeps_no_changes(world: LogInMemory) -> None:
    plain = world.log.append(b"data")
    answer: Any = world.log.append(b"data", [StateChange(1, b"key", bytes(1 << 20))])
    counted: Any = world.log.append(b"data", [StateChange(1, b"key", bytes(1 << 20))], messages=3)
    assert plain.result() < answer.result() < counted.result()
    assert (answer.changes, answer.data, counted.changes, counted.data) == ((), None, (), None)


@pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
def test_a_callback_that_raises_anything_keeps_no_answer_from_others(
    world: LogInMemory, raised: type[BaseException]
) -> None:
    go = threading.Event()
    world.log._appender.on_writer_thread(lambda: go.wait(10))  # the next two become one group

    def fail(_: object) -> None:
        raise raised

    first, second = world.log.append(b"1"), world.log.append(b"2")
    first.add_done_callback(fail)
    answers: list[object] = []
    waiting = threading.Thread(target=lambda: answers.append(second.result()), daemon=True)
    waiting.start()
    while second._waiters is None and waiting.is_alive():
        time.sleep(0.001)
    go.set()
    waiting.join(10)
    assert answers == [second.result()]
    assert world.log.append(b"3").result() > second.result()
