"""Of a group of entries: which transaction each event belongs to, and where that comes from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.binlog.errors import BadEvent
from penstock.encode.change_lines.origins import Origins
from penstock.entries.decode import EntryGroup, GroupRows


class GroupOrigins:
    """The transactions of a group."""

    def __init__(self, group: EntryGroup, rows: GroupRows) -> None:
        files: dict[str, int] = {}
        tags: dict[str, int] = {}
        file_of, tag_of = [], []
        for _, parsed in group.entries:
            header, records = parsed.header, parsed.transactions
            names = np.array([files.setdefault(name, len(files)) for name in header.files] or [0], np.int64)
            marks = np.array([0, *(tags.setdefault(tag, len(tags)) + 1 for tag in header.tags)], np.int64)
            file_of.append(names[records["file"]])
            tag_of.append(marks[records["tag"]])
        records = np.concatenate([parsed.transactions for _, parsed in group.entries])
        self._rows = rows
        self._records = records
        self._file, self._tag = np.concatenate(file_of), np.concatenate(tag_of)
        self._pos = records["start_pos"].astype(np.int64)
        self._gtid = np.ascontiguousarray(records["gtid"]).view(np.uint8).reshape(len(records), 24)
        self._flavour = group.entries[0][1].header.flavour
        self._files, self._tags = list(files), list(tags)

    def of(self, events: npt.NDArray[np.int64]) -> Origins:
        """Of these events."""
        which = self._rows.origins.transaction[events]
        return Origins(
            self._flavour,
            self._files,
            self._tags,
            self._file[which],
            self._pos[which],
            self._gtid[which],
            self._tag[which],
            self._rows.events.timestamp[events],
        )


def events_before(group: EntryGroup, error: BadEvent) -> int:
    """How many events of the group are before the transaction with the event that cannot be decoded."""
    rows = group.rows(error.index + 1) if error.index > 0 else None
    if rows is None:
        return 0
    transaction = rows.origins.transaction
    return int(np.searchsorted(transaction, transaction[error.index]))


def in_file(error: BadEvent) -> BadEvent:
    """The error as it is said of a file: offsets of single events are not known where events were compressed."""
    file, start = error.transaction
    return error.at(start, file=f"{file}, in the transaction that starts there") if file else error


def distinct(event: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The events of ascending rows, each once, and for each row which of them is its own."""
    first = np.empty(len(event), np.bool_)
    first[:1] = True
    np.not_equal(event[1:], event[:-1], out=first[1:])
    return event[first], np.cumsum(first) - 1
