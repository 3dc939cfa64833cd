"""One file's way into storage, step by step. A crash may come between any two steps; a test crashes at each gap.

1. intent   durable at the keeper: path, first and last seq, length, checksum. Binding from here on.
2. data     the file, whole and durable, under the path of the intent.
3. index    names the file: from here on it counts for every reader.
4. progress durable at the keeper: rows up to the last seq are at the sink; the intent is closed with it.
5. cursor   acked by the keeper, after (4) and inside the same request: the cursor may lag progress, never lead it.
6. release  callbacks run and the spool's bytes are free.

After a restart only a dispatcher with an open intent looks at storage. If the index names the intent's file, it
continues at step 4; else at step 2, with exactly the same bytes. The rows may then come split into other payloads, but
a file is a function of its rows alone; length and checksum prove that the bytes are the same. A commit is a state
machine: after a transient error `advance` continues at the same step.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

import google_crc32c

from penstock.delivery.keeper_client import Intent
from penstock.delivery.storage.layout import Layout, directory_of, file_number
from penstock.delivery.storage.store import Store
from penstock.errors import Terminal
from penstock.files import Buffer
from penstock.log.position import Seq


class Step(IntEnum):
    """The step that comes next. The keeper does CURSOR as a part of PROGRESS."""

    INTENT = 1
    DATA = 2
    INDEX = 3
    PROGRESS = 4
    CURSOR = 5
    RELEASE = 6
    OVER = 7


class ProgressKeeper(Protocol):
    """The keeper, bound to one dispatcher and its epoch."""

    def intent(self, intent: Intent) -> None: ...

    def done(self, seq: Seq, path: str | None) -> int: ...


def checksum(data: Buffer) -> int:
    """CRC32C."""
    return int(google_crc32c.value(bytes(data) if not isinstance(data, bytes) else data))


def intent_for(path: str, first_seq: Seq, last_seq: Seq, data: Buffer, rows: int = 0) -> Intent:
    return Intent(path, first_seq, last_seq, len(data), checksum(data), rows)


class Commit:
    """One file on its way into storage. `checkpoint_ts` is 0 until the keeper has answered step 4."""

    def __init__(
        self,
        intent: Intent,
        data: Buffer,
        *,
        layout: Layout,
        keeper: ProgressKeeper,
        store: Store,
        release: Callable[[], None],
    ) -> None:
        self.intent = intent
        self.step = Step.INTENT
        self.checkpoint_ts = 0
        self._data = data
        self._index = layout.index_path(directory_of(intent.path))
        self._keeper = keeper
        self._store = store
        self._release = release

    @classmethod
    def begin(
        cls,
        intent: Intent,
        data: Buffer,
        *,
        layout: Layout,
        keeper: ProgressKeeper,
        store: Store,
        release: Callable[[], None],
    ) -> Commit:
        """A new file. Raises `Terminal` if something exists at its path already: it is not ours to overwrite."""
        if store.exists(intent.path):
            raise Terminal(
                f"{intent.path} is there already, but no intent of ours speaks of it; nothing was overwritten",
                hint="another writer uses this prefix: stop it, then move the file away or use a new prefix",
            )
        return cls(intent, data, layout=layout, keeper=keeper, store=store, release=release)

    @classmethod
    def resume(
        cls,
        intent: Intent,
        data: Buffer,
        *,
        layout: Layout,
        keeper: ProgressKeeper,
        store: Store,
        release: Callable[[], None],
    ) -> Commit:
        """The file of an open intent, built again. Raises `Terminal` if its bytes differ from those of the intent."""
        found = (len(data), checksum(data))
        if found != (intent.length, intent.checksum):
            raise Terminal(
                f"{intent.path} was promised with {intent.length} bytes and checksum {intent.checksum:08x}, but its rows "
                f"{intent.first_seq} to {intent.last_seq} now give {found[0]} bytes and {found[1]:08x}; nothing was overwritten",
                hint="format, tables or Penstock's version changed while the file was open: start once with the old ones",
            )
        commit = cls(intent, data, layout=layout, keeper=keeper, store=store, release=release)
        commit.step = Step.PROGRESS if commit._indexed() else Step.DATA
        return commit

    def advance(self) -> None:
        """Runs the steps that are left. After a transient error the caller calls it again, later."""
        if self.step is Step.INTENT:
            self._keeper.intent(self.intent)
            self.step = Step.DATA
        if self.step is Step.DATA:
            self._store.put(self.intent.path, self._data)
            self.step = Step.INDEX
        if self.step is Step.INDEX:
            name = self.intent.path.rpartition("/")[2]
            self._store.put(self._index, f"{name}\n".encode())
            self.step = Step.PROGRESS
        if self.step is Step.PROGRESS:
            self.checkpoint_ts = self._keeper.done(self.intent.last_seq, self.intent.path)
            self.step = Step.RELEASE  # the keeper has done CURSOR by now
        if self.step is Step.RELEASE:
            self.step = Step.OVER
            self._release()

    def _indexed(self) -> bool:
        content = self._store.read(self._index)
        return content is not None and file_number(content.decode()) >= file_number(self.intent.path)
