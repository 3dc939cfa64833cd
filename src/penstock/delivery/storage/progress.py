"""`_penstock/progress.json`: how far the sink is, in words that outlive the state directory (docs/formats/progress-object.md).

It is replaced only by whoever knows what it holds. A point, once there, is never replaced by none: an old one is true for
ever, and only needs more of the source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from penstock.clock import Clock
from penstock.delivery.storage.layout import CONTROL_DIRECTORY, PROGRESS_PATH
from penstock.delivery.storage.place import SinkObjects
from penstock.errors import Corruption, PenstockError
from penstock.objects import Found

VERSION = 2
POINT_SECONDS_MIN = 5.0  # between two questions for a point: the keeper looks at its log for it
STILL_SECONDS = 30.0  # so long after the last write a point that has moved alone is written
_SCHEMAS_PREFIX = f"{CONTROL_DIRECTORY}/schemas-"
_SCHEMAS_PATH = re.compile(rf"{_SCHEMAS_PREFIX}([0-9a-f]{{16}})\.json")

AskPoint = Callable[[str], dict[str, Any]]
"""The digest of the schemas that are known → the keeper's answer to `recovery_point`."""


def schemas_path(digest: str) -> str:
    return f"{_SCHEMAS_PREFIX}{digest}.json"


def schemas_digest(path: str) -> str:
    return path.removeprefix(_SCHEMAS_PREFIX).removesuffix(".json")


def read_progress(found: Found, where: str) -> dict[str, Any]:
    """The object's content; that of an older version has no point. Raises `Corruption`."""
    try:
        value = json.loads(found.data)
        if not isinstance(value, dict):
            raise ValueError("it is no object")
        value = {"point": None, "version": 1, "checkpoint_ts": 0, **value}
        point = value["point"]
        if not isinstance(value.get("changefeed"), str) or type(value["checkpoint_ts"]) is not int:
            raise ValueError("its changefeed or checkpoint_ts is missing, or is something else")
        if point is not None and not (isinstance(point, dict) and _is_schemas_path(point.get("schemas"))):
            raise ValueError("its point is no object, or names no schemas")
        return value
    except (ValueError, RecursionError) as error:
        hint = "restore it; or delete it, and the next one is written as of then"
        raise Corruption(f"{where}/{PROGRESS_PATH} cannot be read: {error}", hint=hint) from error


def _is_schemas_path(value: object) -> bool:
    return isinstance(value, str) and _SCHEMAS_PATH.fullmatch(value) is not None


def without_point(raw: bytes) -> bytes | None:
    """The object without its point; None where it has none, or is not to be read."""
    try:
        value = json.loads(raw)
        return _encoded({**value, "point": None}) if value.get("point") is not None else None
    except (ValueError, AttributeError):
        return None


class ProgressFile:
    """For one thread at a time."""

    def __init__(self, store: SinkObjects, clock: Clock, changefeed: str, epoch: int, ask: AskPoint | None) -> None:
        self._store = store
        self._clock = clock
        self._changefeed = changefeed
        self._epoch = epoch
        self._ask = ask
        self._known = False  # whether what follows is what the object at the sink holds
        self._token: str | None = None
        self._checkpoint_ts = 0
        self._point: dict[str, Any] | None = None
        self._asked_at: float | None = None
        self._written_at: float | None = None

    def write(self, checkpoint_ts: int, *, moved: bool, at_once: bool) -> bool:
        """`moved`: the sink's checkpoint was written just now. True if the object was written."""
        if not self._known:
            self._look()
        now = self._clock.monotonic()
        still = self._written_at is None or now - self._written_at >= STILL_SECONDS
        if not (moved or at_once or still):
            return False
        point, schemas = self._newer_point(now, at_once=at_once)
        if (point, checkpoint_ts) == (self._point, self._checkpoint_ts):
            return False
        content = {
            "version": VERSION,
            "changefeed": self._changefeed,
            "epoch": self._epoch,
            "checkpoint_ts": checkpoint_ts,
            "wall_ms": self._clock.wall_ms(),
            "point": point,
        }
        self._known = False
        if point is not None and schemas is not None:
            self._store.put(point["schemas"], schemas.encode("utf-8", "surrogatepass"))
        self._token = self._store.put_if(PROGRESS_PATH, _encoded(content), self._token)
        self._known, self._point, self._checkpoint_ts, self._written_at = True, point, checkpoint_ts, now
        if point is not None and schemas is not None:
            self._delete_others(point["schemas"])
        return True

    def _newer_point(self, now: float, *, at_once: bool) -> tuple[dict[str, Any] | None, str | None]:
        """The point to write, and its schemas if they are not at the sink yet."""
        early = self._asked_at is not None and now - self._asked_at < POINT_SECONDS_MIN
        if self._ask is None or (early and not at_once):
            return self._point, None
        known = schemas_digest(self._point["schemas"]) if self._point else ""
        try:
            answer = self._ask(known)
        except PenstockError:
            return self._point, None  # the checkpoint does not depend on it
        self._asked_at = now
        if answer["point"] is None:
            return self._point, None
        point = dict(answer["point"])
        point["schemas"] = schemas_path(point["schemas"])
        if self._point is not None and _place(point) == _place(self._point):
            return self._point, None  # only the log's end has moved
        return point, answer["schemas"]

    def _look(self) -> None:
        found = self._store.read(PROGRESS_PATH)
        self._token = found.token if found is not None else None
        value = read_progress(found, "the sink") if found is not None else {}
        self._point = value.get("point")
        self._checkpoint_ts = int(value.get("checkpoint_ts") or 0)
        self._known = True

    def _delete_others(self, current: str) -> None:
        names = [name for name in self._store.list(CONTROL_DIRECTORY) if name.startswith(_SCHEMAS_PREFIX)]
        self._store.delete([name for name in names if name != current])


def _place(point: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name not in ("log_end", "log_position")}


def _encoded(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
