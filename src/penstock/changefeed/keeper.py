"""The keeper: one per changefeed, in `penstock run`. It owns the two durable facts of a changefeed.

*Progress* of a dispatcher: its rows at or below this seq are at the sink. *Cursor*: nothing at or before it is needed
by anyone. Everything else about a changefeed may be lost at any moment. The keeper promises:

1. What an answer confirms is durable: a new dispatcher with its epoch, an intent, progress, the checkpoint.
2. An intent is binding: while it is open, a different intent of that dispatcher is refused, but for one that replaces it
   for the same rows; `done` closes it.
   Intent, progress and the drain of a DDL are taken from the current run alone: a delivery process that was taken for dead
   and goes on would promise files that the run after it knows nothing of.
3. Progress, epochs and the checkpoint never go back, not even over restarts.
4. The cursor may lag progress, never lead it. Order of `done`: (1) one frame with progress, the closed intent and the
   checkpoint that both allow; (2) once that frame is durable, the acks of the ranges that it completes; (3) the answer.
5. A range is acked once every dispatcher with rows in it has progress at or past its last row there. Ranges may be
   acked in any order.

Callers are threads of `control.sock`. Each frame is made under the lock, so frames have the order in which memory
changed, and is waited for outside the lock, so that the record log makes many frames durable with one sync. If a frame
fails, memory is ahead of the disk: the keeper refuses everything from then on, and the run ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from penstock.changefeed.facts import CHECKPOINT, CHECKPOINT_KEY, DISPATCHERS, DispatcherFacts
from penstock.changefeed.forgetting import finish_forgetting
from penstock.changefeed.pausing import Pausing
from penstock.changefeed.ranges import PublishedRange, PublishedRanges, at_or_after, merged
from penstock.changefeed.settings_versions import (
    Versions,
    check_begins_nothing,
    check_key,
    put_versions,
    start_with_version,
    stored_versions,
    versions_with,
)
from penstock.clock import SYSTEM_CLOCK, Clock
from penstock.delivery.keeper_client import Intent, PauseWish
from penstock.entries.table_history import read_history
from penstock.entries.whole_end import find_whole_end
from penstock.errors import BadInput, Closed, Fenced, PenstockError, StaleRun, Terminal, fresh
from penstock.files import REAL_FILES, Files
from penstock.log import Cursor, LogReader, RecordLog
from penstock.log.position import Position, Seq
from penstock.rules.versions import RowSettings, SettingsVersion
from penstock.state import BucketState, Change


class _Durable(Protocol):
    def result(self, timeout: float | None = None) -> Any: ...


class Keeper:
    """The keeper of one changefeed. Thread-safe. Only the holder of the state directory's lock may open it."""

    def __init__(
        self,
        name: str,
        *,
        reader: LogReader,
        cursor: Cursor,
        state: BucketState,
        record: RecordLog,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.name = name
        self.reader = reader
        self._cursor = cursor
        self._state = state
        self._record = record
        self._clock = clock
        self._lock = threading.Lock()
        self._dispatchers = state.store(DISPATCHERS)
        self._checkpoints = state.store(CHECKPOINT)
        self._facts = {key: DispatcherFacts.from_json(value) for key, value in self._dispatchers.items()}
        self._checkpoint = self._checkpoints.get(CHECKPOINT_KEY) or 0  # as of the newest frame
        self._durable_checkpoint = self._checkpoint
        self._pausing = Pausing(state)
        self._versions = stored_versions(state)
        self._ranges = PublishedRanges()
        self._run: str | None = None
        self._published_end = cursor.mark_delete_position
        # The newest frame. Frames become durable in order, so waiting for it covers all before it.
        self._newest: _Durable | None = None
        self._broken: PenstockError | None = None

    @classmethod
    def open(
        cls, state_dir: Path, name: str, reader: LogReader, *, files: Files = REAL_FILES, clock: Clock = SYSTEM_CLOCK
    ) -> Keeper:
        """Opens the changefeed's progress log and cursor, or creates them; a new cursor is at the log's first entry."""
        finish_forgetting(state_dir, name, reader, files)  # of an earlier one of this name: the power was cut then
        record = RecordLog.open(state_dir / "progress", name, files=files)
        state = BucketState.open(record)
        cursor = Cursor.open(reader, state_dir / "cursors", name, start="earliest", files=files)
        return cls(name, reader=reader, cursor=cursor, state=state, record=record, clock=clock)

    def close(self) -> None:
        """Waits until every frame is durable, and raises if one is not; everything is closed all the same. Later calls raise
        `Closed`."""
        with self._lock:
            newest = self._newest
            self._broken = self._broken or Closed(f"the keeper of {self.name} is closed")
        with contextlib.ExitStack() as stack:  # in reverse
            stack.callback(self._record.close)
            stack.callback(self._state.close)
            stack.callback(self._cursor.close)
            if newest is not None:
                newest.result(None)

    # ---- facts

    def facts(self) -> dict[str, DispatcherFacts]:
        """The facts of every dispatcher; returns once all of them are durable."""
        with self._lock:
            self._check()
            facts, newest = dict(self._facts), self._newest
        self._wait(newest)
        return facts

    def snapshot(self) -> dict[str, DispatcherFacts]:
        """Like `facts`, without waiting for the disk: for status only."""
        with self._lock:
            return dict(self._facts)

    @property
    def mark_delete(self) -> Position:
        return self._cursor.mark_delete_position

    @property
    def published_end(self) -> Position:
        """The last entry of the current run that was published; mark-delete where there is none yet."""
        with self._lock:
            return max(self._published_end, self._cursor.mark_delete_position)

    @property
    def checkpoint_ts(self) -> int:
        """Every row of transactions up to this commit_ts is durably at the sink.

        It never goes back. It moves with mark-delete, at the ends of published ranges.
        """
        return self._durable_checkpoint

    @property
    def broken(self) -> PenstockError | None:
        """The error after which everything is refused; None while the keeper works."""
        return self._broken

    @property
    def paused_ms(self) -> int | None:
        """When the changefeed was paused; None while it is not. Over restarts."""
        return self._pausing.since_ms

    @property
    def pause_wish(self) -> PauseWish:
        with self._lock:
            return self._pausing.wish

    def set_paused(self, paused: bool) -> PauseWish:
        """While it is paused, nothing new is to be published; durable when it returns. The cursor stays, and holds the log."""
        with self._lock:
            self._check()
            change = self._state.begin()
            wish = self._pausing.put(change, paused=paused, now_ms=self._clock.wall_ms())
            pending = self._commit(change)
        self._wait(pending)
        return wish

    @property
    def waiting_ranges(self) -> int:
        with self._lock:
            return len(self._ranges)

    def backlog(self) -> int:
        return self._cursor.backlog()

    def backlog_bytes(self) -> int:
        """Bytes of data in the log that are not at the sink; frames that carry state alone count as nothing."""
        return self._cursor.backlog_bytes()

    def reached(self, position: Position) -> bool:
        """Whether everything up to `position` is at the sink and acked."""
        return at_or_after(self.reader, self._cursor.mark_delete_position, position)

    def published_reached(self, position: Position) -> bool:
        return at_or_after(self.reader, self.published_end, position)

    # ---- settings that shape rows

    @property
    def settings_versions(self) -> Versions:
        """Those that are durable, ascending; none where nobody ever said."""
        with self._lock:
            return self._versions

    def keep_settings(self, settings: RowSettings, key: str, *, capturing: bool = False) -> SettingsVersion | None:
        """These are the settings that shape rows from here on; returns once that is durable, with the version that begins, if
        one does. Before any run begins. `key`: the fingerprint of the key at hand. `capturing`: capture may append meanwhile.

        Raises `BadInput` where the old settings still need another key, and where a version would begin while capture runs: only
        its start leaves a number free for the tables, and begins a ledger, so that no row has the seq of the version's DDL.
        """
        with self._lock:
            self._check()
            known = self._versions
            mark = self._cursor.mark_delete_position
            untouched = not self._facts and mark.entry_id < 0
            versions = versions_with(
                known,
                settings,
                untouched=untouched,
                end=lambda: find_whole_end(self.reader, mark),
                history=lambda: read_history(self.reader),
                delivered=self._checkpoint,
            )
            check_key(self.name, versions, key, self.reached)
            if capturing:
                check_begins_nothing(self.name, known, versions)
            pending = self._newest
            if versions != known:
                change = self._state.begin()
                put_versions(self._state, change, known, versions)
                pending = self._commit(change)
        self._wait(pending)
        with self._lock:
            self._versions = versions
        return versions[-1] if len(versions) > 1 and versions[-1] not in known else None

    # ---- dispatchers and epochs (asked by the maintainer)

    def create(self, dispatchers: Mapping[str, tuple[str, str]]) -> None:
        """Creates the dispatchers of {dispatcher: (schema, table)} that do not exist yet, at epoch 1; returns once
        durable."""
        with self._lock:
            self._check()
            change = self._state.begin()
            created = False
            for dispatcher, (schema, table) in dispatchers.items():
                if dispatcher not in self._facts:
                    self._put(change, dispatcher, DispatcherFacts(1, schema, table))
                    created = True
            pending = self._commit(change) if created else self._newest
        self._wait(pending)

    def raise_epoch(self, dispatcher: str, epoch: int) -> None:
        """Fences the dispatcher's older owners; returns once durable. An open intent stays open."""
        with self._lock:
            facts = self._known(dispatcher)
            if epoch <= facts.epoch:
                raise Fenced(f"{self._where(dispatcher)}: epoch {epoch} is not above {facts.epoch}")
            change = self._state.begin()
            self._put(change, dispatcher, replace(facts, epoch=epoch))
            pending = self._commit(change)
        self._wait(pending)

    # ---- dispatchers that take no part

    def leave_out(self, dispatcher: str, *, out: bool) -> int:
        """Whether the dispatcher is to be left out, from now on and over restarts; returns, once durable, since when it is, or 0.
        Its rows stay in the log: the cursor does not pass what it needs."""
        with self._lock:
            facts = self._known(dispatcher)
            since_ms = (facts.left_out_ms or self._clock.wall_ms()) if out else 0
            pending = self._newest
            if since_ms != facts.left_out_ms:
                change = self._state.begin()
                self._put(change, dispatcher, replace(facts, left_out_ms=since_ms))
                pending = self._commit(change)
        self._wait(pending)
        return since_ms

    def begin_replay(self, run: str, dispatchers: Collection[str]) -> dict[str, tuple[Position, DispatcherFacts]]:
        """These dispatchers come back, each with epoch + 1, which is durable when this returns: where each replay starts, and
        the facts that it goes on from. What is published of them with an older epoch does not count. Refuses all of them where
        one is to be left out, or the run is over."""
        with self._lock:
            self._check()
            if run != self._run:
                raise StaleRun(f"{self.name}: run {run} is over", hint="begin a new run")
            if out := [self._where(each) for each in dispatchers if self._known(each).left_out_ms]:
                raise StaleRun(f"{out[0]} is to be left out again", hint="begin a new run")
            change = self._state.begin()
            found = {}
            for each in dispatchers:
                self._put(change, each, replace(self._facts[each], epoch=self._facts[each].epoch + 1))
                start = self._ranges.oldest_start(each) or self.reader.next(self._published_end)
                found[each] = (start_with_version(self._versions, self.reader, start), self._facts[each])
            pending = self._commit(change)
        self._wait(pending)
        return found

    @property
    def left_out(self) -> dict[str, DispatcherFacts]:
        """The dispatchers that are to be left out."""
        return {key: facts for key, facts in self.snapshot().items() if facts.left_out_ms}

    def settled(self, position: Position) -> bool:
        """Whether everything up to `position` is at the sink, but for rows of dispatchers that are to be left out."""
        if self.reached(position) or not self.left_out:
            return self.reached(position)
        with self._lock:  # both are of one run: a new one has published nothing, and waits for nobody
            out = {key for key, facts in self._facts.items() if facts.left_out_ms}
            return at_or_after(self.reader, self._published_end, position) and self._ranges.waiting_for <= out

    # ---- a run

    def begin_run(self, run: str) -> Position:
        """Forgets the ranges of older runs. Returns the position where the new run starts."""
        with self._lock:
            self._check()
            self._run = run
            self._ranges = PublishedRanges()
            self._published_end = self._cursor.mark_delete_position
            newest = self._newest
            start = start_with_version(self._versions, self.reader, self.reader.next(self._published_end))
        self._wait(newest)
        return start

    def published(self, run: str, start: Position, end: Position, commit_ts: int, last: Mapping[str, Seq]) -> None:
        """Delivery has the range `start` to `end`, both included; `last` is each dispatcher's last seq in it.

        `commit_ts` is that of the last transaction that is complete at `end`. Publishing a range again changes nothing.
        """
        with self._lock:
            self._check()
            if run != self._run:
                raise StaleRun(f"{self.name}: run {run} is over", hint="begin a new run")
            if start > end:
                raise BadInput(f"{self.name}: the range {start} to {end} is empty")
            if end <= self._published_end:
                pending, complete = self._newest, []
            else:
                if end > (log_end := self.reader.end()):
                    raise BadInput(f"{self.name}: the range {start} to {end} goes beyond the log's end {log_end}")
                start = self._contiguous(start, end)
                waiting = {d: seq for d, seq in last.items() if not self._delivered(d, seq)}
                ready = self._ranges.add(start, end, commit_ts, waiting)
                self._published_end = end
                complete = [ready] if ready is not None else []
                change = self._state.begin()
                pending = self._commit(change) if self._put_checkpoint(change) else self._newest
            checkpoint = self._checkpoint
        self._settle(pending, complete, checkpoint)

    def intent(
        self, dispatcher: str, epoch: int, intent: Intent, *, run: str | None = None, replaces: bool = False
    ) -> None:
        """The dispatcher is about to write this file. Returns once the intent is durable; it is binding from then on.

        `replaces`: the rows of the open intent give other bytes now, or get another path, and it has no file at the sink.
        `run`: as everywhere, the caller's; None is this process's own.
        """
        with self._lock:
            facts = self._owned(dispatcher, epoch, run)
            intended = facts.intending(self._where(dispatcher), intent, replaces=replaces)
            pending = self._newest
            if intended is not facts:
                change = self._state.begin()
                self._put(change, dispatcher, intended)
                pending = self._commit(change)
        self._wait(pending)

    def done(self, dispatcher: str, epoch: int, seq: Seq, path: str | None, *, run: str | None = None) -> int:
        """Rows at or below `seq` are at the sink; `path` is the file, where that closes an intent.

        Returns the checkpoint once all of it is durable. A repetition changes nothing and is answered the same way.
        """
        with self._lock:
            facts = self._owned(dispatcher, epoch, run)
            complete: list[PublishedRange] = []
            if facts.progress is not None and seq <= facts.progress:
                pending = self._newest
            else:
                facts = facts.closed(self._where(dispatcher), seq, path, self._clock.wall_ms())
                complete, commit_ts = self._ranges.progress(dispatcher, seq)
                change = self._state.begin()
                self._put(
                    change,
                    dispatcher,
                    replace(facts, progress=seq, progress_commit_ts=max(facts.progress_commit_ts, commit_ts)),
                )
                self._put_checkpoint(change)
                pending = self._commit(change)
            checkpoint = self._checkpoint
        self._settle(pending, complete, checkpoint)
        return self._durable_checkpoint

    def drained(self, dispatcher: str, seq: Seq, *, run: str | None = None) -> bool:
        """Whether everything of the dispatcher before a DDL at `seq` is durably at the sink. Other tables that the
        statement concerns are delivery's to wait for: only there is known what is before the statement in a range."""
        with self._lock:
            self._check_run(run)
            facts, oldest = self._known(dispatcher), self._ranges.oldest_pending(dispatcher)
            if facts.intent is not None or (oldest is not None and oldest < seq):
                return False
            newest = self._newest
        self._wait(newest)
        return True

    # ---- inside

    def _check(self) -> None:
        if self._broken is not None:
            raise fresh(self._broken)

    def _known(self, dispatcher: str) -> DispatcherFacts:
        self._check()
        facts = self._facts.get(dispatcher)
        if facts is None:
            raise BadInput(f"{self.name} has no dispatcher {dispatcher}", hint="it is made when its range is published")
        return facts

    def _check_run(self, run: str | None) -> None:
        if run is not None and run != self._run:
            raise Fenced(
                f"{self.name}: run {run} is over", hint="another delivery process writes now; this one has to end"
            )

    def _owned(self, dispatcher: str, epoch: int, run: str | None) -> DispatcherFacts:
        self._check_run(run)
        facts = self._known(dispatcher)
        if epoch != facts.epoch:
            raise Fenced(f"{self._where(dispatcher)}: epoch {epoch} is not {facts.epoch}, its owner now")
        return facts

    def _where(self, dispatcher: str) -> str:
        facts = self._facts[dispatcher]
        return f"{self.name}: {facts.schema}.{facts.table}"

    def _delivered(self, dispatcher: str, seq: Seq) -> bool:
        progress = self._known(dispatcher).progress
        return progress is not None and seq <= progress

    def _contiguous(self, start: Position, end: Position) -> Position:
        """The range's first position in the log. Refuses a gap: the checkpoint would pass entries that nobody
        published."""
        before = self._published_end
        if start == Position(before.ledger_id, before.entry_id + 1) and start.ledger_id == end.ledger_id:
            return start
        following = self.reader.next(before)  # the log may go on in a later ledger
        # `start` may name a ledger in between: it was open and empty when the run began, and was removed since.
        if not before < start <= following:
            raise Terminal(
                f"{self.name}: the range {start} to {end} does not go on after {before}", hint="begin a new run"
            )
        return following

    def _put(self, change: Change, dispatcher: str, facts: DispatcherFacts) -> None:
        self._facts[dispatcher] = facts
        self._dispatchers.put(change, dispatcher, facts.to_json())

    def _put_checkpoint(self, change: Change) -> bool:
        if self._ranges.head_commit_ts <= self._checkpoint:
            return False
        self._checkpoint = self._ranges.head_commit_ts
        self._checkpoints.put(change, CHECKPOINT_KEY, self._checkpoint)
        return True

    def _commit(self, change: Change) -> _Durable:
        try:
            self._newest = self._state.commit(change)
        except BaseException as error:
            self._break(error)
            raise
        return self._newest

    def _wait(self, pending: _Durable | None) -> None:
        if pending is None:
            return
        try:
            pending.result(None)
        except BaseException as error:
            self._break(error)
            raise

    def _settle(self, pending: _Durable | None, complete: list[PublishedRange], checkpoint: int) -> None:
        """Steps 1 to 3 of `done`: the frame, then the acks, then the answer may name the checkpoint."""
        self._wait(pending)
        try:
            acks = [self._cursor.ack(first, last) for first, last in merged(complete)]
        except BaseException as error:
            self._break(error)
            raise
        for ack in acks:
            self._wait(ack)
        with self._lock:
            self._durable_checkpoint = max(self._durable_checkpoint, checkpoint)

    def _break(self, error: BaseException) -> None:
        if self._broken is None:
            self._broken = (
                error if isinstance(error, PenstockError) else Terminal(f"the keeper of {self.name} failed: {error!r}")
            )
