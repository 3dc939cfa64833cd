"""The log: one owner appends entries, others read them, cursors remember what is done with them.

A log has one owner (`Log`), any number of readers in any process (`LogReader`), and named cursors (`Cursor`), each with
an owner of its own. `append(...).result()` returns once the entry and its state changes are on the disk.

The packages, each of which imports only from those above it:

| package | job |
|---|---|
| `position`, `pending`, `settings`, `stall`, `metrics` | addresses; futures; settings; stalled disks; metrics |
| `frames/` | entries and records as bytes in a file, and the `end` file, which says how many of them are durable |
| `ledgers/` | ledgers: the files of a log, the list of them in the metadata store, what must be kept |
| `offload/` | copies of sealed ledgers in object stores |
| `read/` | reading entries, in any process |
| `append/` | the owner's writer thread |
| `records/` | the record log, small and compacted, in which cursors and changefeeds keep their facts |
| `cursors/` | cursors |
| `retention/` | what is kept, and what goes |
| `check/` | looking for damage |
| `opening`, `parts`, `log`, `open_logs`, `deletion`, `statistics`, `attached` | the log as a whole and its handle |
"""

from penstock.log.append.request import Span, Terminated
from penstock.log.cursors.backlog import CursorStats
from penstock.log.cursors.cursor import Cursor
from penstock.log.cursors.table import CursorInfo, CursorTable
from penstock.log.frames.format import Entry, FrameInfo, StateChange
from penstock.log.log import Log, LogState, LogStatistics
from penstock.log.offload.offloader import OffloadInProgress, OffloadProgress
from penstock.log.pending import Pending, wait_all
from penstock.log.position import Position, Seq
from penstock.log.read.cache import configure_cache
from penstock.log.read.positions import LedgerView
from penstock.log.read.reader import LogReader, Trimmed
from penstock.log.records.record_log import Record, RecordLog
from penstock.log.retention.skip import Skipping, skip_closed
from penstock.log.settings import LogSettings
from penstock.log.stall import SyncStalled

__all__ = [
    "Cursor",
    "CursorInfo",
    "CursorStats",
    "CursorTable",
    "Entry",
    "FrameInfo",
    "LedgerView",
    "Log",
    "LogReader",
    "LogSettings",
    "LogState",
    "LogStatistics",
    "OffloadInProgress",
    "OffloadProgress",
    "Pending",
    "Position",
    "Record",
    "RecordLog",
    "Seq",
    "Skipping",
    "Span",
    "StateChange",
    "SyncStalled",
    "Terminated",
    "Trimmed",
    "configure_cache",
    "skip_closed",
    "wait_all",
]
