"""The first frame of a log that begins at a place which somebody else knows: after a recovery from a sink."""

from __future__ import annotations

from penstock.capture.recorder import Recorder
from penstock.capture.resumption import followed_schemas
from penstock.capture.transactions.frame_content import FrameContent
from penstock.errors import BadInput
from penstock.log import Log
from penstock.sources.settings import LoadScope, Tables
from penstock.sources.source import Beginning
from penstock.state import BucketState


def begin_log(log: Log, begun: Beginning, *, tables: Tables, scope: LoadScope | None) -> None:
    """Durable when it returns: capture then reads on from there, as if it had asked the source itself. commit_ts go on above
    that of the position. Raises `BadInput` for a log that has begun."""
    state = BucketState.open(log)
    recorder = Recorder(log, state, followed_schemas(state, tables))
    if recorder.position is not None:
        raise BadInput(f"the log {log.directory} has begun already, at {recorder.position}")
    recorder.append(FrameContent([], begun.position, schemas=begun.schemas, loads=begun.loads, scope=scope))
    recorder.finish()
    recorder.close()
