"""Files expire: data directories of days that are long enough before the checkpoint lose their files.

The day is that of the rows' commit_ts, and the clock is the checkpoint: everything up to it is at the sink, so nothing comes
into such a directory any more, and nothing expires while the sink stands still. `_penstock/expired.json` says from which day
on files are there, before the first one is deleted. An index goes before the files that it names: readers stop at a
missing file, and pass over a directory without an index. Schema files and `metadata` stay.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from datetime import date
from itertools import islice
from typing import Protocol

from penstock.commit_ts import commit_ts_of, milliseconds_of
from penstock.delivery.storage.layout import CONTROL_DIRECTORY, Layout, date_of
from penstock.delivery.storage.place import SinkObjects
from penstock.errors import Corruption, PenstockError
from penstock.objects import Found

EXPIRED_PATH = f"{CONTROL_DIRECTORY}/expired.json"
FILES_AT_ONCE = 100  # deleted by one `step`: the checkpoint's thread does it
_DAY_MS = 86_400_000
_LOG = logging.getLogger(__name__)


class _Reader(Protocol):
    def read(self, name: str) -> Found | None: ...


def expired_before(objects: _Reader) -> str:
    """The first day whose files are all there; "" where none ever expired."""
    return _parsed(objects.read(EXPIRED_PATH))[0]


class Expiry:
    """For one thread at a time. `days` 0: nothing expires."""

    def __init__(self, store: SinkObjects, layout: Layout, days: int) -> None:
        self._store = store
        self._days = days
        version, day = re.escape(layout.version_prefix), re.escape(layout.date_prefix)
        directory = rf"[^/]+/[^/]+/{version}\d+/{day}(\d{{4}}-\d\d-\d\d)"
        self._index = re.compile(rf"{directory}/{re.escape(layout.meta)}/CDC\.index")
        self._data = re.compile(rf"{directory}/CDC\d+{re.escape(layout.extension)}")
        self._done: str | None = None  # nothing of a day before it is left; None: nobody has looked
        self._token: str | None = None
        self._before = ""
        self._left: Iterator[list[str]] | None = None

    def step(self, checkpoint_ts: int) -> int:
        """Deletes a few files, if any are due; returns how many."""
        if not self._days or not checkpoint_ts:
            return 0
        before = date_of(commit_ts_of(max(0, milliseconds_of(checkpoint_ts) - self._days * _DAY_MS)))
        if self._done is not None and before <= self._done:
            return 0
        try:
            return self._delete_some(before)
        except PenstockError:
            self._done = self._left = None  # from the start, at the next step
            raise

    def _delete_some(self, before: str) -> int:
        if self._done is None:
            found = self._store.read(EXPIRED_PATH)
            recorded, finished = _parsed(found)
            self._token = found.token if found is not None else None
            self._done = recorded if finished else ""
            before = max(before, recorded)
            if before <= self._done:
                return 0
        if self._left is None:
            self._record(before, finished=False)
            self._before, self._left = before, self._expired(before)
        names = next(self._left, [])
        self._store.delete(names)
        if not names:
            self._record(self._before, finished=True)
            self._done, self._left = self._before, None
            _LOG.info("files have expired", extra={"before": self._before})
        return len(names)

    def _expired(self, before: str) -> Iterator[list[str]]:
        """A few names at a time; never an index and a file together: each deletion is durable before the next one."""
        for kind in (self._index, self._data):
            found = (kind.fullmatch(name) for name in self._store.walk())
            names = (match[0] for match in found if match is not None and match[1] < before)
            while some := list(islice(names, FILES_AT_ONCE)):
                yield some

    def _record(self, before: str, *, finished: bool) -> None:
        text = json.dumps({"before": before, "finished": finished})
        self._token = self._store.put_if(EXPIRED_PATH, text.encode() + b"\n", self._token)


def _parsed(found: Found | None) -> tuple[str, bool]:
    if found is None:
        return "", True
    try:
        value = json.loads(found.data)
        return date.fromisoformat(value["before"]).isoformat(), value["finished"] is True
    except (ValueError, KeyError, TypeError) as error:
        raise Corruption(f"{EXPIRED_PATH} at the sink cannot be read: {found.data[:100]!r}") from error
