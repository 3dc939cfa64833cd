"""What the keeper knows for certain about each dispatcher, and how that is stored in the progress log.

A value is one JSON object. A missing field has its default, so that a newer version reads older files. Seqs are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.delivery.keeper_client import Intent
from penstock.errors import BadInput, Corruption
from penstock.log.position import Seq
from penstock.state import StateDescriptor
from penstock.state.types import codecs


@dataclass(frozen=True, slots=True)
class DispatcherFacts:
    """Rows at or below `progress` are at the sink. `rows`, `files` and `bytes` count everything ever delivered."""

    epoch: int
    schema: str
    table: str
    progress: Seq | None = None
    progress_commit_ts: int = 0
    last_path: str | None = None
    intent: Intent | None = None
    rows: int = 0
    files: int = 0
    bytes: int = 0
    last_write_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "schema": self.schema,
            "table": self.table,
            "progress": str(self.progress) if self.progress is not None else None,
            "progress_commit_ts": self.progress_commit_ts,
            "last_path": self.last_path,
            "intent": self.intent.to_json() if self.intent is not None else None,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "last_write_ms": self.last_write_ms,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DispatcherFacts:
        """Raises `Corruption` where `value` is not what `to_json` makes."""
        try:
            progress, intent = value.get("progress"), value.get("intent")
            return cls(
                epoch=int(value["epoch"]),
                schema=value["schema"],
                table=value["table"],
                progress=Seq.parse(progress) if progress else None,
                progress_commit_ts=int(value.get("progress_commit_ts", 0)),
                last_path=value.get("last_path"),
                intent=Intent.from_json(intent) if intent else None,
                rows=int(value.get("rows", 0)),
                files=int(value.get("files", 0)),
                bytes=int(value.get("bytes", 0)),
                last_write_ms=int(value.get("last_write_ms", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(f"the facts of a dispatcher cannot be read: {error!r}: {value!r}") from error


DISPATCHERS: StateDescriptor[str, dict[str, Any]] = StateDescriptor(
    "progress.dispatchers", "keeper", codecs.text, codecs.json
)
"""Dispatcher id → `DispatcherFacts.to_json()`."""

CHECKPOINT: StateDescriptor[str, int] = StateDescriptor("progress.checkpoint", "keeper", codecs.text, codecs.u64)
CHECKPOINT_KEY = "checkpoint"

RULES: StateDescriptor[str, dict[str, Any]] = StateDescriptor("progress.rules", "keeper", codecs.text, codecs.json)
"""`rules` → {rules, since}: what shaped the rows that are at the sink, and the first position that it holds for."""
RULES_KEY = "rules"

PAUSED: StateDescriptor[str, int] = StateDescriptor("progress.paused", "keeper", codecs.text, codecs.u64)
"""`PAUSED_KEY` → when the changefeed was paused, in milliseconds; absent while it is not."""
PAUSED_KEY = "paused"


def parse_seq(text: object, what: str) -> Seq:
    """Parses a seq of a request. Raises `BadInput` that names the argument `what`."""
    try:
        return Seq.parse(str(text))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{what} {text!r} is no seq", hint="a seq is ledger:entry:event:row") from error
