"""The log: frames, ledgers, the managed log and its reader, cursors, and the small record log that they share.

A log has one owner (`Log`), any number of readers in other processes (`LogReader`), and named cursors (`Cursor`), each
owned apart. `append(...).result()` returns once the entry and its state changes are on the disk.
"""

from penstock.log.append.request import Span, Terminated
from penstock.log.cursors.cursor import Cursor, CursorStats
from penstock.log.cursors.table import CursorInfo, CursorTable
from penstock.log.frames.format import Entry, FrameInfo, StateChange
from penstock.log.log import Log, LogStatistics
from penstock.log.offload.offloader import OffloadInProgress, OffloadProgress
from penstock.log.pending import Pending, wait_all
from penstock.log.position import Position, Seq
from penstock.log.read.cache import configure_cache
from penstock.log.read.reader import LedgerView, LogReader, Trimmed
from penstock.log.records.record_log import Record, RecordLog
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
    "LogStatistics",
    "OffloadInProgress",
    "OffloadProgress",
    "Pending",
    "Position",
    "Record",
    "RecordLog",
    "Seq",
    "Span",
    "StateChange",
    "SyncStalled",
    "Terminated",
    "Trimmed",
    "configure_cache",
    "wait_all",
]
