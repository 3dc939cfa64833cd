"""Files of JSON lines read back in columns, without Python per row: where each value stands, and what it says.

Only what the caller asks for is looked at. A value is named by its path, `("data", "id")`; values of a path are rows of spans,
which can be moved and joined like any array before they become text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.encode.kernels import json_spans
from penstock.encode.lines import json_text
from penstock.files import Buffer
from penstock.schema.changes import SEQ_DTYPE

Path = tuple[str, ...]
Spans = npt.NDArray[np.int64]
OtherNames = Callable[[bytes], Iterable[Path]]

_LINE_BYTES_GUESS = 256
_ESCAPES = np.arange(256, dtype=np.uint8)
for _letter, _meaning in (("n", "\n"), ("r", "\r"), ("t", "\t"), ("b", "\b"), ("f", "\f")):
    _ESCAPES[ord(_letter)] = ord(_meaning)
_SEQ_FIELDS = ("ledger", "entry", "event", "row")


class JsonLines:
    """The lines of a file. Raises `ValueError` where a line is no object as our encoders write them, or has no end."""

    def __init__(self, file: Buffer, terminator: str) -> None:
        self._data = np.frombuffer(file, np.uint8)
        ends = _line_ends(self._data)
        if len(self._data) and (not len(ends) or ends[-1] != len(self._data) - 1):
            raise ValueError("its last line has no end")
        self._starts = np.concatenate([np.zeros(min(1, len(ends)), np.int64), ends[:-1] + 1])
        self._ends = ends - (len(terminator) - 1)
        self._spans: Spans = np.empty((0, len(ends), 2), np.int64)
        self._places: dict[Path, int] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def line(self, number: int) -> bytes:
        return self._data[self._starts[number] : self._ends[number]].tobytes()

    def find(self, paths: Sequence[Path], closed: Sequence[Path] = (), others: OtherNames | None = None) -> None:
        """Looks for the values of `paths` in every line. An object at a `closed` path may have no other names than those: a
        line in which it has is given to `others`, which says what to look for from there on."""
        wanted = list(paths)
        first = 0
        while True:
            tree, names = _tree(wanted, closed)
            grown = np.full((len(wanted), len(self), 2), -1, np.int64)
            grown[: len(self._spans)] = self._spans
            self._spans, self._places = grown, {path: place for place, path in enumerate(wanted)}
            first, state = json_spans.find_spans(self._data, self._starts, self._ends, tree, names, grown, first)
            if state == json_spans.GOOD:
                return
            new = [] if others is None else [path for path in others(self.line(first)) if path not in self._places]
            if state == json_spans.BROKEN or not new:
                raise ValueError(f"line {first + 1} is not as the format has it: {self.line(first)[:80]!r}")
            wanted += new

    def spans(self, path: Path) -> Spans:
        """Where the value of each line begins and ends; -1 where it is not there."""
        found: Spans = self._spans[self._places[path]]
        return found

    def below(self, path: Path) -> list[Path]:
        """The paths that were looked for in an object, in the order in which they were named."""
        return [found for found in self._places if found[:-1] == path]

    def text(self, spans: Spans) -> pa.Array[Any]:
        """The values as text: strings as what they mean, others as they stand there; null where there is none."""
        spans = np.ascontiguousarray(spans)
        offsets = np.empty(len(spans) + 1, np.int64)
        valid = np.empty(len(spans), np.bool_)
        out = np.empty(int((spans[:, 1] - spans[:, 0]).sum()), np.uint8)
        json_spans.texts(self._data, spans, _ESCAPES, offsets, valid, out)
        bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").data)
        buffers = [bits, pa.py_buffer(offsets.data), pa.py_buffer(out[: offsets[-1]].data)]
        made = pa.Array.from_buffers(pa.large_string(), len(spans), buffers)
        return made if offsets[-1] > np.iinfo(np.int32).max else made.cast(pa.string())

    def letters(self, path: Path, letters: dict[str, str]) -> npt.NDArray[np.uint8]:
        """The first letter of each value, a string, as the code of the letter that it stands for."""
        spans = self.spans(path)
        if len(spans) and int(spans[:, 0].min()) < 0:
            raise ValueError(f"a line without {'.'.join(path)}")
        meanings = np.zeros(256, np.uint8)
        for letter, meaning in letters.items():
            meanings[ord(letter)] = ord(meaning)
        found = meanings[self._data[spans[:, 0] + 1]]
        if not found.all():
            raise ValueError(f"a line whose {'.'.join(path)} is none of {', '.join(letters)}")
        return found

    def integers(self, path: Path) -> npt.NDArray[np.uint64]:
        return self._numbers(path, 1)[:, 0]

    def seqs(self, path: Path) -> npt.NDArray[np.void]:
        """Seqs as text, `L:E:e:r`, in their binary form."""
        values = self._numbers(path, len(_SEQ_FIELDS))
        made = np.empty(len(values), SEQ_DTYPE)
        for place, name in enumerate(_SEQ_FIELDS):
            made[name] = values[:, place]
        return made

    def different(self, ones: Spans, others: Spans, out: npt.NDArray[np.bool_]) -> None:
        """Sets `out` where both values are there and are not the same."""
        json_spans.different(self._data, ones, others, out)

    def _numbers(self, path: Path, parts: int) -> npt.NDArray[np.uint64]:
        values = np.empty((len(self), parts), np.uint64)
        if not json_spans.integers(self._data, self.spans(path), parts, values):
            raise ValueError(f"a line whose {'.'.join(path)} is no such number")
        return values


def _line_ends(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where the newlines are."""
    found = np.empty(len(data) // _LINE_BYTES_GUESS + 1, np.int64)
    count = at = 0
    while True:
        count, at = json_spans.newlines(data, at, found, count)
        if at == len(data):
            return found[:count].copy()
        found = np.concatenate((found, np.empty_like(found)))


def before_name(name: str) -> str:
    """The column of the values before a change. No table has one of this name: a name has no blank at its end."""
    return f"{name} before "


def told_name(name: str) -> str:
    """The column of what lines say beside the values: of which database and table they are. No table has one of this name."""
    return f"{name} of the line "


def letter_column(codes: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    """Codes of letters as a column of strings, of one letter each."""
    offsets = np.arange(len(codes) + 1, dtype=np.int32)
    return pa.StringArray.from_buffers(len(codes), pa.py_buffer(offsets.data), pa.py_buffer(codes.data))


def seq_column(seqs: npt.NDArray[np.void]) -> pa.Array[Any]:
    """Seqs as a column of 24 bytes each."""
    offsets = np.arange(len(seqs) + 1, dtype=np.int32) * seqs.dtype.itemsize
    data = np.ascontiguousarray(seqs).view(np.uint8)
    return pa.Array.from_buffers(pa.binary(), len(seqs), [None, pa.py_buffer(offsets.data), pa.py_buffer(data.data)])


def _tree(paths: Sequence[Path], closed: Sequence[Path]) -> tuple[Spans, npt.NDArray[np.uint8]]:
    """The tree of the paths, for the kernel: siblings in the order in which they are first named."""
    nodes: dict[Path, int] = {(): 0}
    for path in paths:
        for depth in range(1, len(path) + 1):
            nodes.setdefault(path[:depth], len(nodes))
    tree = np.full((len(nodes), json_spans.NODE_FIELDS), -1, np.int64)
    names = b""
    last: dict[int, int] = {}  # the youngest child of a node
    for path, node in nodes.items():
        if path:
            parent = nodes[path[:-1]]
            if parent in last:
                tree[last[parent], json_spans.SIBLING] = node
            else:
                tree[parent, json_spans.CHILD] = node
            last[parent] = node
            tree[node, json_spans.NAME] = len(names)
            names += json_text(path[-1])[1:-1].encode()
            tree[node, json_spans.NAME_END] = len(names)
        tree[node, json_spans.CLOSED] = path in closed
    for column, path in enumerate(paths):
        tree[nodes[path], json_spans.COLUMN] = column
    return tree, np.frombuffer(names, np.uint8)
