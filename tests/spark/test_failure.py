"""Errors find their way from a task to the user."""

from __future__ import annotations

import errno
import os

import pytest

from penstock.entries.format import BadEntry
from penstock.errors import Corruption, NotSupported, StaleRun, TooMuch, Unavailable
from penstock.spark.failure import (
    error_to_text,
    exit_code,
    failure_from_text,
    unexpected_error,
)
from penstock.spark.runs import next_batch_bytes

JAVA = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe: org.apache.spark.SparkException: Job aborted
  File "/x/worker.py", line 12, in read
ZeroDivisionError: division by zero
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:572)
"""


def test_an_error_of_a_task_keeps_its_words_and_where_it_was() -> None:
    found = failure_from_text(error_to_text(NotSupported("type GEOMETRY of shop.a", hint='leave "it" out'), "source"))
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


@pytest.mark.parametrize(
    "text",
    [
        str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))),
        "Job aborted due to stage failure: java.io.IOException: No space left on device\n\tat java.base/sun.nio.ch",
    ],
)
def test_a_full_disk_is_waited_for(text: str) -> None:
    assert unexpected_error(text).transient
    assert "state_dir" in unexpected_error(text).hint


def test_an_unexpected_error_is_one_line() -> None:
    assert unexpected_error(JAVA).message == "ZeroDivisionError: division by zero"


def test_a_batch_that_delivery_had_no_room_for_comes_again_at_half_its_size() -> None:
    size = most = 256 << 20
    for expected in (128 << 20, 64 << 20):
        size = next_batch_bytes(size, TooMuch("full"), most)
        assert size == expected
    for _ in range(30):  # a quota below what a megabyte of narrow rows becomes was refused again and again
        size = next_batch_bytes(size, TooMuch("full"), most)
    assert size == 1, "one entry: a batch is never less"
    assert next_batch_bytes(size, Unavailable("away"), most) == most
