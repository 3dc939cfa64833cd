"""One file's way into storage, step by step. A crash may come between any two steps; a test crashes at each gap.

1. intent   durable at the keeper: path, first and last seq, length, checksum. Binding from here on.
2. data     the file, whole and durable, under the path of the intent.
3. index    names the file: from here on it counts for every reader.
4. progress durable at the keeper: rows up to the last seq are at the sink; the intent is closed with it.
5. cursor   acked by the keeper, after (4) and inside the same request: the cursor may lag progress, never lead it.
6. release  callbacks run and the spool's bytes are free.

After a restart only a dispatcher with an open intent looks at storage:

- The index names the intent's file: on with step 4. The file's bytes are not looked at; whoever wrote them wrote these rows.
- The file is there, as it was promised: on with step 3. Nothing is put together again.
  Both only once what was found is durable: whoever put it may have died before that.
- The file is there, as it was promised before the intent was replaced: a put of a process that died has arrived late. It holds
  the same rows, so its promise is taken back, and it goes on with step 3.
- It is not there: its rows give the promised bytes, and it goes on with step 2. Or they do not, because the encoder has changed or
  the rows came split otherwise: the keeper then replaces the intent by one for the same rows under the same name, which no
  reader has seen, and it goes on as at step 1. Other rows than those of the intent are refused.
- In an adopted sink the files before it may be gone, or be another's, and so may what lies under its name: the keeper
  replaces the intent by one for the same rows under the next number there.

A name that was given up would leave a hole, at which readers of the index stop; so an unnamed number is used for what
follows it, never passed over. A small file is put on the condition that there is none, and before a large one the unfinished
uploads of its name are ended, so that what a dead process sent and arrives late changes nothing. Where it arrives first, that is
the file, if its promise is known.

A commit is a state machine: after a transient error `advance` continues at the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from penstock.delivery.dispatcher import Batch
from penstock.delivery.keeper_client import Intent
from penstock.delivery.sink import Bodies
from penstock.delivery.storage.index import Indexes
from penstock.delivery.storage.layout import Layout, file_number
from penstock.delivery.storage.place import SinkObjects
from penstock.encode import Assembler
from penstock.errors import Terminal
from penstock.files import Buffer
from penstock.log.frames.format import crc32c
from penstock.log.position import Seq
from penstock.objects import ObjectChanged

ONE_PUT_BYTES_MAX = 16 << 20  # a larger file goes as a stream, with no more than a few parts in memory
_READ_BYTES = 8 << 20


class Step(IntEnum):
    """The step that comes next. LOOK and PREPARE change nothing; the keeper does CURSOR as a part of PROGRESS."""

    LOOK = -1
    PREPARE = 0
    INTENT = 1
    DATA = 2
    INDEX = 3
    PROGRESS = 4
    CURSOR = 5
    RELEASE = 6
    OVER = 7


class ProgressKeeper(Protocol):
    """The keeper, bound to one dispatcher and its epoch."""

    def intent(self, intent: Intent, replaces: Intent | None) -> None: ...

    def done(self, seq: Seq, path: str | None) -> int: ...


@dataclass(frozen=True, slots=True)
class Storage:
    """Where the files of one sink go. `adopted`: its files may be another's, and its own may be gone."""

    layout: Layout
    store: SinkObjects
    indexes: Indexes
    adopted: bool = False


class Commit:
    """One batch on its way into `directory`, a `BatchWrite`; `number` is the file's, unless an earlier owner `opened` one.
    `checkpoint_ts` is 0 until the keeper has answered step 4."""

    def __init__(
        self,
        directory: str,
        batch: Batch,
        bodies: Bodies,
        *,
        assembler: Assembler,
        number: int,
        opened: Intent | None,
        storage: Storage,
        keeper: ProgressKeeper,
        release: Callable[[], None],
    ) -> None:
        self.step = Step.LOOK
        self.checkpoint_ts = 0
        self._batch = batch
        self._bodies = bodies
        self._assembler = assembler
        self._opened = opened
        self._directory = directory
        self._storage = storage
        self._path = opened.path if opened is not None else storage.layout.data_path(directory, number)
        self._index = storage.layout.index_path(directory)
        self._store = storage.store
        self._indexes = storage.indexes
        self._keeper = keeper
        self._release = release
        self._small: bytes | None = None  # the whole file, if it is small
        self._intent: Intent | None = opened
        self._is_there = False  # the file of the intent, put by an earlier owner
        if not self._path.startswith(f"{directory}/"):
            raise Terminal(
                f"{self._path} is open, but its rows belong to {directory} now",
                hint="layout or format changed while the file was open: start once with the old ones",
            )

    @property
    def path(self) -> str:
        return self._path

    @property
    def last_seq(self) -> Seq:
        return self._batch.last_seq

    @property
    def size(self) -> int:
        return self._intent.length if self._intent is not None else 0

    def advance(self) -> None:
        """Runs the steps that are left. After a transient error the caller calls it again, later."""
        if self.step is Step.LOOK:
            self.step = self._look()
        if self.step is Step.PREPARE:
            self.step = self._prepare()
        assert self._intent is not None
        if self.step is Step.INTENT:
            self._keeper.intent(self._intent, self._opened)
            self.step = Step.DATA
        if self.step is Step.DATA:
            try:
                self._put()
            except ObjectChanged as error:
                self._take_late(error)
            self.step = Step.INDEX
        if self.step is Step.INDEX:
            self._indexes.name(self._index, self._path.rpartition("/")[2])
            self.step = Step.PROGRESS
        if self.step is Step.PROGRESS:
            self.checkpoint_ts = self._keeper.done(self.last_seq, self._path)
            self.step = Step.RELEASE  # the keeper has done CURSOR by now
        if self.step is Step.RELEASE:
            self.step = Step.OVER
            self.pause()
            self._release()

    def pause(self) -> None:
        """Lets go of the file's bytes: during an outage the files of all tables would be in memory."""
        if self._small is not None:
            self._bodies.hold(-len(self._small))
            self._small = None

    def _look(self) -> Step:
        if self._opened is None:
            return self._look_for_nothing()
        there = self._store.size(self._path)
        if any(length > ONE_PUT_BYTES_MAX for length, _ in self._opened.promises):
            self._store.end_uploads(self._path)  # that a dead process may have left
        last, number = self._indexes.last_number(self._index), file_number(self._path)
        if self._storage.adopted and (last > number or last < number - 1 or (last == number and self._differs(there))):
            self._path = self._storage.layout.data_path(self._directory, last + 1)
            return self._look_for_nothing()
        if last >= number:
            self._store.settle(self._index)
            return Step.PROGRESS
        if last < number - 1:
            raise Terminal(
                f"{self._path} is open, but the index of its directory names file {last}: files that were written are gone",
                hint="restore the files of the sink, then start again; a new prefix needs a new state_dir",
            )
        if there is None:
            return Step.PREPARE
        promise = self._promise_of(there)
        if promise is None:
            raise Terminal(
                f"{self._path} is there, but is not what was promised: {self._opened}; nothing was overwritten",
                hint="another writer uses this prefix: stop it, then move the file away",
            )
        self._store.settle(self._path)
        if promise == self._opened:
            return Step.INDEX
        self._intent, self._is_there = promise, True
        return Step.INTENT

    def _look_for_nothing(self) -> Step:
        if self._store.size(self._path) is not None:
            raise Terminal(
                f"{self._path} is there already, but no intent of ours speaks of it; nothing was overwritten",
                hint="another writer uses this prefix: stop it, then move the file away or use a new prefix",
            )
        return Step.PREPARE

    def _differs(self, there: int | None) -> bool:
        """Whether another file than a promised one is at its path."""
        return there is not None and self._opened is not None and self._promise_of(there) is None

    def _promise_of(self, there: int) -> Intent | None:
        """The promise for these rows that the file at the path keeps, which has `there` bytes; None where it keeps none."""
        opened = self._opened
        if opened is None or opened.path != self._path:
            return None
        if there not in {length for length, _ in opened.promises}:
            return None
        return opened.promise_of(there, self._checksum_at_sink(there))

    def _take_late(self, error: ObjectChanged) -> None:
        """Another file than this one has come to the path since it was looked at. It is ours if an earlier owner promised it for
        the same rows and died over its put: then that is the file. Else raises the error."""
        there = self._store.size(self._path)
        promise = self._promise_of(there) if there is not None else None
        if promise is None:
            raise error
        self._store.settle(self._path)
        self._keeper.intent(promise, self._intent)
        self._intent = promise

    def _checksum_at_sink(self, length: int) -> int:
        found = 0
        for offset in range(0, length, _READ_BYTES):
            found = crc32c(self._store.get(self._path, offset, _READ_BYTES), found)
        return found

    def _prepare(self) -> Step:
        """What is promised: for an open intent that which was, if its rows still give it. The first of two passes over the
        payloads; of a small file, the only one."""
        batch, opened = self._batch, self._opened
        length = checksum = 0
        kept: list[Buffer] | None = []
        for part in self._parts():
            length += len(part)
            checksum = crc32c(part, checksum)
            if kept is not None:
                kept.append(part)
                if length > ONE_PUT_BYTES_MAX:
                    kept = None
        if kept is not None:
            self._small = b"".join(kept)
            self._bodies.hold(length)
        found = Intent(self._path, batch.first_seq, batch.last_seq, length, checksum, batch.rows)
        if opened is not None and not found.same_rows(opened):
            raise _other_rows(opened, found)
        self._intent = found
        return Step.DATA if found == opened else Step.INTENT

    def _put(self) -> None:
        """A small file in one request, on the condition that there is none; a large one as a stream."""
        assert self._intent is not None
        if self._is_there:
            return
        if self._intent.length > ONE_PUT_BYTES_MAX:
            self._store.end_uploads(self._path)  # of an earlier try
            self._store.put_stream(self._path, self._checked_parts(self._intent))
            return
        data = self._small
        if data is None:  # after a pause
            data = b"".join(self._checked_parts(self._intent))
        self._store.put_if(self._path, data, None)

    def _parts(self) -> Iterator[Buffer]:
        return (memoryview(part).cast("B") for part in self._assembler.join(self._bodies) if len(part))

    def _checked_parts(self, promised: Intent) -> Iterator[Buffer]:
        """Raises, before the last byte counts, unless they are what was promised."""
        length = checksum = 0
        for part in self._parts():
            length += len(part)
            checksum = crc32c(part, checksum)
            yield part
        if (length, checksum) != (promised.length, promised.checksum):
            raise Terminal(f"{promised.path}: its rows gave other bytes when it was put together again")


def _other_rows(opened: Intent, found: Intent) -> Terminal:
    return Terminal(
        f"{opened.path} was promised with the {opened.rows} rows {opened.first_seq} to {opened.last_seq}, but now there are "
        f"{found.rows} from {found.first_seq} to {found.last_seq}; nothing was written",
        hint="rows of an open file are missing from the log or were filtered: restore the old source.tables and sinks.NAME.only",
    )
