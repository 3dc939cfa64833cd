"""Who may write below a prefix: one changefeed of one log. `_penstock/owner.json` says so.

A prefix that belongs to another changefeed or another log is refused, and so is one that holds files without an owner, or
that has lost its owner object: it was deleted, or its disk is not mounted. `adopt` takes such a prefix over, when somebody says so.
One that has more than the keeper knows of is refused, too: the state directory is an older copy, and would write that again.
Each process that takes the prefix first raises the epoch in that file, by a put on the condition that nobody else did
so meanwhile. On `file://` a lock keeps out a second process of the same owner (of a copied state directory, or an old
process that still drains); the lock ends with its process. On other stores the older process finds the new epoch before
its next put, and writes nothing more; a large file that it is in the middle of is ended (S3; on GCS and Azure a process that
sleeps between its look at the owner and the last request of a large file could still finish that).
"""

from __future__ import annotations

import contextlib
import functools
import json
import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from penstock.clock import Clock
from penstock.commit_ts import milliseconds_of
from penstock.delivery.storage.checkpoint import checkpoint_of
from penstock.delivery.storage.layout import CONTROL_DIRECTORY, METADATA_PATH, OWNER_PATH, PROGRESS_PATH
from penstock.delivery.storage.place import SinkPlace
from penstock.delivery.storage.progress import without_point
from penstock.errors import BadInput, Corruption, Fenced, Terminal
from penstock.objects import ObjectChanged, ObjectStore

ANY_LOG = ""  # in the place of a log's UUID: the prefix was adopted before there was a log
CHECK_SECONDS_MIN = 1.0  # between two looks at the owner object of a remote store
_HINT = "use a new prefix, or take this one over: penstock run --adopt {}"


@dataclass(frozen=True, slots=True)
class Owner:
    """The content of `_penstock/owner.json`."""

    changefeed: str
    log_uuid: str
    format: str
    epoch: int
    claimed_ms: int
    claim: str  # another one for each process, so that no two contents are equal
    adopted: bool = False  # files that this changefeed did not write may be there, or some that it wrote may not
    version: int = 1

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self), indent=2).encode() + b"\n"

    @classmethod
    def from_bytes(cls, raw: bytes, where: str) -> Owner:
        try:
            value: dict[str, Any] = json.loads(raw)
            return cls(**{name: value[name] for name in cls.__slots__})
        except (ValueError, KeyError, TypeError) as error:
            raise Corruption(f"{where}/{OWNER_PATH} cannot be read: {error!r}", hint="use a new prefix") from error


def check_owner(
    objects: ObjectStore,
    *,
    changefeed: str,
    log_uuid: str,
    format_name: str,
    delivered: bool,
    anew: bool = False,
    checkpoint_ts: int | None = None,
) -> tuple[Owner, str] | None:
    """The recorded owner and its token if it is this changefeed, None for an unused prefix. Raises `BadInput` for any other
    owner, for files of one that was forgotten, where this one begins `anew`, and where the sink has a later checkpoint than the
    keeper's `checkpoint_ts`; `Terminal` where the prefix is unused and something was `delivered` to it before."""
    where = objects.url
    found = objects.read(OWNER_PATH)
    if found is None:
        if delivered:
            raise _gone(where, changefeed)
        foreign = next((name for name in objects.walk() if not name.startswith(f"{CONTROL_DIRECTORY}/")), None)
        if foreign is not None:
            raise BadInput(
                f"{where} holds files that no feed of Penstock owns ({foreign}, …)", hint=_HINT.format(changefeed)
            )
        return None
    owner = Owner.from_bytes(found.data, where)
    if owner.changefeed != changefeed or owner.log_uuid not in (log_uuid, ANY_LOG):
        same_name = " of another state directory" if owner.changefeed == changefeed else ""
        raise BadInput(
            f"{where} holds files of feed {owner.changefeed}{same_name}, last write {_last_write(objects)}",
            hint=_HINT.format(changefeed),
        )
    if owner.format != format_name:
        raise BadInput(
            f"{where} holds {owner.format} files of feed {changefeed}, which is set to {format_name} now",
            hint="set the old format again, or give the new one a new prefix",
        )
    if anew and not owner.adopted and any(name.endswith("/CDC.index") for name in objects.walk()):
        raise BadInput(
            f"{where} holds what feed {changefeed} wrote before it was forgotten, and it would write that again",
            hint="give it a new url: a sink that was forgotten begins anew",
        )
    there = checkpoint_of(objects.read(METADATA_PATH))
    if checkpoint_ts is not None and there > checkpoint_ts and not owner.adopted:  # its keeper began after its files
        raise BadInput(
            f"{where} has what was committed up to {_shown(milliseconds_of(there))}, and the state directory knows of nothing "
            f"after {_shown(milliseconds_of(checkpoint_ts))}: it is an older copy, and would write the rest again",
            hint="go on with the newest state directory; where that is lost, move this one away: penstock run --recover-from-sink",
        )
    return owner, found.token


class Claim:
    """A prefix that this process may write, until `close`. Thread-safe."""

    def __init__(self, owner: Owner, token: str, place: SinkPlace, clock: Clock, lock: contextlib.ExitStack) -> None:
        self.owner = owner
        self._token = token
        self._place = place
        self._clock = clock
        self._lock = lock
        self._checked_at = clock.monotonic()

    def check(self, *, now: bool = False) -> None:
        """Raises `Terminal` where the owner object is gone, `Fenced` where another process has taken the prefix. Unless it is to
        look `now`, an answer of a remote store holds for a second."""
        at = self._clock.monotonic()
        if self._place.remote and not now and at - self._checked_at < CHECK_SECONDS_MIN:
            return
        found = self._place.objects.read(OWNER_PATH)
        if found is None:
            raise _gone(self._place.where, self.owner.changefeed)
        if found.token != self._token:
            raise Fenced(
                f"another process took {self._place.where} over; nothing more is written to it",
                hint="a copy of the state directory is in use: stop one of the two",
            )
        self._checked_at = at

    def close(self) -> None:
        self._lock.close()


def claim(
    place: SinkPlace,
    clock: Clock,
    *,
    changefeed: str,
    log_uuid: str,
    format_name: str,
    delivered: bool = False,
    anew: bool = False,
    checkpoint_ts: int | None = None,
) -> Claim:
    """Takes the prefix: lock, check, epoch + 1. Raises `Unavailable` where another process still holds it, and `Fenced`
    where one took it in the same moment. `delivered`: files of this changefeed should be there; `anew`: none should, because
    nothing is known of any table; `checkpoint_ts`: everything up to it is there, and of what is later the keeper does not know."""
    objects = place.objects
    check = functools.partial(
        check_owner,
        objects,
        changefeed=changefeed,
        log_uuid=log_uuid,
        format_name=format_name,
        delivered=delivered,
        anew=anew,
        checkpoint_ts=checkpoint_ts,
    )
    check()
    with contextlib.ExitStack() as stack:
        stack.enter_context(place.lock())
        before = check()
        epoch = before[0].epoch + 1 if before is not None else 1
        adopted = before is not None and before[0].adopted
        owner = Owner(changefeed, log_uuid, format_name, epoch, clock.wall_ms(), uuid.uuid4().hex, adopted)
        try:
            token = objects.put_if(OWNER_PATH, owner.to_bytes(), before[1] if before is not None else None)
        except ObjectChanged:
            raise Fenced(
                f"another process took {place.where} in this moment", hint="stop it, or use a new prefix"
            ) from None
        if place.remote:
            objects.end_uploads("")
        return Claim(owner, token, place, clock, stack.pop_all())


def adopt(
    place: SinkPlace, clock: Clock, *, changefeed: str, log_uuid: str | None, format_name: str, goes_on: bool = False
) -> bool:
    """Makes this changefeed the owner of a prefix that `claim` would refuse. False where it is that already. `log_uuid` is
    None where there is no log yet. Nothing else at the prefix is changed, but that the progress object loses its point:
    what is written from here on is not what comes after it, unless the new log `goes_on` there.

    Raises `BadInput` where the files there have another format, `Unavailable` where another process still writes there.
    """
    objects = place.objects
    with place.lock():
        found = objects.read(OWNER_PATH)
        before = Owner.from_bytes(found.data, place.where) if found is not None else None
        if before is not None and before.format != format_name:
            raise BadInput(
                f"{place.where} holds {before.format} files of feed {before.changefeed}, and {changefeed} is set to {format_name}",
                hint="use a new prefix: all files under one have one format",
            )
        if before is not None and before.changefeed == changefeed and before.log_uuid in (log_uuid, ANY_LOG):
            return False
        epoch = before.epoch + 1 if before is not None else 1
        owner = Owner(
            changefeed, log_uuid or ANY_LOG, format_name, epoch, clock.wall_ms(), uuid.uuid4().hex, adopted=True
        )
        progress = objects.read(PROGRESS_PATH)
        if not goes_on and progress is not None and (pointless := without_point(progress.data)) is not None:
            objects.put_if(PROGRESS_PATH, pointless, progress.token)
        objects.put_if(OWNER_PATH, owner.to_bytes(), found.token if found is not None else None)
    return True


def _gone(where: str, changefeed: str) -> Terminal:
    return Terminal(
        f"{where} no longer has {OWNER_PATH}, though files of feed {changefeed} were written there: it was deleted, or is not "
        "mounted. Nothing was written",
        hint="mount it or restore its files, then start again; or go on there without them: "
        f"penstock run --adopt {changefeed}",
    )


def _last_write(objects: ObjectStore) -> str:
    found = objects.read(PROGRESS_PATH)
    try:
        milliseconds = int(json.loads(found.data)["wall_ms"]) if found is not None else None
    except (ValueError, KeyError, TypeError):
        milliseconds = None
    if milliseconds is None:
        return "never" if objects.size(METADATA_PATH) is None else "unknown"
    return _shown(milliseconds)


def _shown(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
