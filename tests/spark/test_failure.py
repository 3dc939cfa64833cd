"""Errors find their way out of a Java exception's text."""

from __future__ import annotations

import pickle

from penstock.entries.format import BadEntry
from penstock.errors import Corruption, NotSupported, StaleRun, TooMuch, Unavailable
from penstock.spark.failure import (
    PipelineFailure,
    error_to_text,
    exit_code,
    failure_from_text,
    find_failure,
    unexpected_error,
)
from penstock.spark.query import next_batch_bytes

JAVA = """An error occurred while calling o97.awaitTermination: org.apache.spark.SparkException: Job aborted
  File "/x/worker.py", line 12, in read
penstock.spark.failure.PipelineFailure: {}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)
"""


def test_an_error_survives_a_java_stack_trace() -> None:
    text = JAVA.format(PipelineFailure(NotSupported("type GEOMETRY of shop.a", hint='leave "it" out'), "source"))
    found = find_failure(text)
    assert found is not None
    assert type(found.error) is NotSupported
    assert (found.error.message, found.error.hint, found.where) == (
        "type GEOMETRY of shop.a",
        'leave "it" out',
        "source",
    )
    assert exit_code(found.error, found.where) == 3


def test_a_rooms_own_error_becomes_the_kind_that_all_know() -> None:
    found = failure_from_text(error_to_text(BadEntry("not an entry"), "source"))
    assert type(found.error) is Corruption


def test_transient_errors_ask_for_another_try() -> None:
    assert exit_code(StaleRun("old"), "sink") == 75


def test_a_python_process_that_starts_too_slowly_is_tried_again() -> None:
    text = "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    assert unexpected_error(text).transient
    assert not unexpected_error("ZeroDivisionError: division by zero").transient


def test_an_unexpected_error_is_one_line() -> None:
    text = JAVA.format("x").replace("penstock.spark.failure.PipelineFailure: x", "ZeroDivisionError: division by zero")
    assert find_failure(text) is None
    assert unexpected_error(text).message == "ZeroDivisionError: division by zero"


def test_a_fault_can_be_pickled() -> None:
    again = pickle.loads(pickle.dumps(PipelineFailure(Corruption("bad", hint="h"), "sink")))
    assert (again.error.message, again.where) == ("bad", "sink")


def test_a_batch_that_delivery_had_no_room_for_comes_again_at_half_its_size() -> None:
    size = most = 256 << 20
    for expected in (128 << 20, 64 << 20):
        size = next_batch_bytes(size, TooMuch("full"), most)
        assert size == expected
    for _ in range(30):  # a quota below what a megabyte of narrow rows becomes was refused again and again
        size = next_batch_bytes(size, TooMuch("full"), most)
    assert size == 1, "one entry: a batch is never less"
    assert next_batch_bytes(size, Unavailable("away"), most) == most
