"""XA groups that somebody should know of, as `penstock status` shows them: prepared ones, and those that were missed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.commit_ts import milliseconds_of
from penstock.sources.position import HeldGroup

SHOWN_MAX = 20  # of each; the counts are of all


def xa_facts(held: Iterable[HeldGroup], missed: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """The oldest prepared groups, and where the first missed ones committed: rows that were prepared before the log's start."""
    groups = sorted(held, key=lambda group: group.commit_ts)
    gone = sorted(missed)
    return {
        "held": [_held(group) for group in groups[:SHOWN_MAX]],
        "held_count": len(groups),
        "missed": [{"xid": _as_written(xid), "committed_before": position} for xid, position in gone[:SHOWN_MAX]],
        "missed_count": len(gone),
    }


def _held(group: HeldGroup) -> dict[str, Any]:
    return {
        "xid": _as_written(group.xid),
        "since_ms": milliseconds_of(group.commit_ts),
        "file": group.file,
        "pos": group.pos,
        "pins_after": group.after or None,  # of the log; a group without rows pins nothing
    }


def _as_written(xid: str) -> str:
    """`format:gtrid:bqual` as XA COMMIT takes it."""
    form, _, rest = xid.partition(":")
    gtrid, _, bqual = rest.partition(":")
    return f"X'{gtrid}',X'{bqual}',{form}"
