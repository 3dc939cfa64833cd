"""The log: frames, ledgers, the managed log and its reader, cursors, and the small record log that they share.

A log has one owner (`Log`), any number of readers in other processes (`LogReader`), and named cursors (`Cursor`), each
owned apart. `append(...).result()` returns once the entry and its state changes are on the disk.
"""

from penstock.log.cursor import AckBeyondEnd, Cursor, MarkDeleteBackwards
from penstock.log.frame import Entry, FrameInfo, StateChange
from penstock.log.managed import Log, LogSettings
from penstock.log.pending import Pending, wait_all
from penstock.log.position import Position, Seq
from penstock.log.reader import LedgerView, LogReader
from penstock.log.record_log import Record, RecordLog

__all__ = [
    "AckBeyondEnd",
    "Cursor",
    "Entry",
    "FrameInfo",
    "LedgerView",
    "Log",
    "LogReader",
    "LogSettings",
    "MarkDeleteBackwards",
    "Pending",
    "Position",
    "Record",
    "RecordLog",
    "Seq",
    "StateChange",
    "wait_all",
]
