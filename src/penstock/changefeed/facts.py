"""What the keeper knows for certain about each dispatcher, and how that is stored in the progress log.

A value is one JSON object. A missing field has its default, so that a newer version reads older files. Seqs are text.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.delivery.keeper_client import Intent
from penstock.errors import BadInput, Corruption, Terminal
from penstock.log.position import Seq
from penstock.state import StateDescriptor
from penstock.state.types import codecs


@dataclass(frozen=True, slots=True)
class DispatcherFacts:
    """Rows at or below `progress` are at the sink. `rows`, `files` and `bytes` count everything delivered from this state
    directory. `recovered`: rows at or below it are at the sink from before, with seqs of a log that was lost. `left_out_ms`:
    since when somebody wants it left out (`penstock pause SINK --table`); 0 while nobody does."""

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
    recovered: Seq | None = None
    left_out_ms: int = 0

    def intending(self, where: str, intent: Intent, *, replaces: bool) -> DispatcherFacts:
        """These facts with the intent open; they themselves where it is open already. Raises where it may not begin."""
        if self.intent is not None and not (replaces and self.intent != intent and self.intent.same_rows(intent)):
            if self.intent != intent:
                raise Terminal(
                    f"{where}: {self.intent} is not done, so {intent} cannot begin",
                    hint="finish the open file with exactly its bytes first",
                )
            return self
        if intent.last_seq < intent.first_seq or (self.progress is not None and intent.first_seq <= self.progress):
            raise Terminal(f"{where}: {intent} is not after progress {self.progress}")
        return replace(self, intent=intent.replacing(self.intent))

    def closed(self, where: str, seq: Seq, path: str | None, now_ms: int) -> DispatcherFacts:
        """These facts after closing the intent that `path` names. Raises if `done` does not fit the open intent."""
        intent = self.intent
        if intent is None:
            if path is not None:
                raise Terminal(f"{where}: {path} was written without an intent")
            return self
        if intent.path != path or intent.last_seq != seq:
            raise Terminal(
                f"{where}: {intent} is open, but {path} up to {seq} is reported",
                hint="finish the open file with exactly its bytes first",
            )
        return replace(
            self,
            intent=None,
            last_path=path,
            rows=self.rows + intent.rows,
            files=self.files + 1,
            bytes=self.bytes + intent.length,
            last_write_ms=now_ms,
        )

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
            **({"recovered": str(self.recovered)} if self.recovered is not None else {}),
            "left_out_ms": self.left_out_ms,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DispatcherFacts:
        """Raises `Corruption` where `value` is not what `to_json` makes."""
        try:
            progress, intent = value.get("progress"), value.get("intent")
            recovered = value.get("recovered")
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
                recovered=Seq.parse(recovered) if recovered else None,
                left_out_ms=int(value.get("left_out_ms", 0)),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corruption(f"the facts of a dispatcher cannot be read: {error!r}: {value!r}") from error


DISPATCHERS: StateDescriptor[str, dict[str, Any]] = StateDescriptor(
    "progress.dispatchers", "keeper", codecs.text, codecs.json
)
"""Dispatcher id → `DispatcherFacts.to_json()`."""

CHECKPOINT: StateDescriptor[str, int] = StateDescriptor("progress.checkpoint", "keeper", codecs.text, codecs.u64)
CHECKPOINT_KEY = "checkpoint"

SETTINGS: StateDescriptor[int, dict[str, Any]] = StateDescriptor("progress.settings", "keeper", codecs.u64, codecs.json)
"""Number → `SettingsVersion.to_json()`: the settings that shape rows, each from a position on."""

PAUSED: StateDescriptor[str, int] = StateDescriptor("progress.paused", "keeper", codecs.text, codecs.u64)
"""`PAUSED_KEY` → when the changefeed was paused, in milliseconds; absent while it is not."""
PAUSED_KEY = "paused"


def parse_seq(text: object, what: str) -> Seq:
    """Parses a seq of a request. Raises `BadInput` that names the argument `what`."""
    try:
        return Seq.parse(str(text))
    except (ValueError, TypeError) as error:
        raise BadInput(f"{what} {text!r} is no seq", hint="a seq is ledger:entry:event:row") from error
