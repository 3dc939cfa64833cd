"""Changes of a simulated disk that are not synced yet, and what a power cut may leave of them.

A `Node` is a file apart from its names: what readers see, what is durable, and the edits in between. A `NameChange` is
a name that was made, moved or removed and is not durable yet. Every change has a sequence number, its operation's.

`after_power_cut` decides the fate of each unsynced change: it is kept, lost, or (a write) torn at sector granularity.
What was lost beyond the old end of a file reads as zeros or is not there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SECTOR_BYTES = 512


@dataclass(frozen=True, slots=True)
class Write:
    sequence: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    sequence: int
    size: int
    grow_only: bool


Edit = Write | Resize


@dataclass(slots=True)
class Node:
    """A file apart from its names."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Edit] = field(default_factory=list)

    def copy(self) -> Node:
        return Node(bytearray(self.content), bytearray(self.durable), list(self.pending))


@dataclass(frozen=True, slots=True)
class NameChange:
    """`target` now names `node` (None: nothing), and `source`, if any, names nothing any more."""

    sequence: int
    target: Path
    node: Node | None
    source: Path | None = None


class _Fate(Enum):
    KEPT = 1
    LOST = 2
    TORN = 3


_FATES = tuple(_Fate)


def apply_edit(content: bytearray, edit: Edit) -> None:
    if isinstance(edit, Write):
        end = edit.offset + len(edit.data)
        if edit.offset > len(content):
            content.extend(bytes(edit.offset - len(content)))
        content[edit.offset : end] = edit.data
    elif edit.size > len(content):
        content.extend(bytes(edit.size - len(content)))
    elif not edit.grow_only:
        del content[edit.size :]


def apply_name(names: dict[Path, Node], change: NameChange) -> None:
    if change.source is not None:
        names.pop(change.source, None)
    if change.node is None:
        names.pop(change.target, None)
    else:
        names[change.target] = change.node


def after_power_cut(
    durable_names: Mapping[Path, Node], name_changes: Sequence[NameChange], rng: random.Random
) -> dict[Path, Node]:
    """One possible state of the disk: names and files, everything durable. The arguments stay as they are."""
    fate_of = _choose_fates(durable_names, name_changes, rng)
    names = dict(durable_names)
    for change in name_changes:
        if fate_of(change.sequence) is _Fate.KEPT:
            apply_name(names, change)
    copies: dict[int, Node] = {}
    for node in names.values():
        if id(node) not in copies:
            content = bytearray(node.durable)
            for edit in node.pending:
                fate = fate_of(edit.sequence)
                if fate is _Fate.KEPT:
                    apply_edit(content, edit)
                elif fate is _Fate.TORN and isinstance(edit, Write):
                    _apply_torn(content, edit, rng)
            copies[id(node)] = Node(content, bytearray(content))
    return {path: copies[id(node)] for path, node in names.items()}


def _choose_fates(
    durable_names: Mapping[Path, Node], name_changes: Sequence[NameChange], rng: random.Random
) -> Callable[[int], _Fate]:
    """The fate of each unsynced change: all kept, all lost, kept up to a moment with the next one torn, or any
    mixture."""
    nodes = {id(n): n for n in [*durable_names.values(), *(c.node for c in name_changes if c.node)]}
    edits: set[int] = {e.sequence for n in nodes.values() for e in n.pending}
    sequences = sorted(edits | {c.sequence for c in name_changes})
    mode = rng.random()
    if mode < 0.1:
        fates = dict.fromkeys(sequences, _Fate.KEPT)
    elif mode < 0.2:
        fates = dict.fromkeys(sequences, _Fate.LOST)
    elif mode < 0.6:
        end = rng.randrange(len(sequences) + 1)
        fates = {s: _Fate.KEPT if i < end else _Fate.LOST for i, s in enumerate(sequences)}
        if end < len(sequences):
            fates[sequences[end]] = _Fate.TORN
    else:
        fates = {s: rng.choice(_FATES) for s in sequences}
    return fates.__getitem__


def _apply_torn(content: bytearray, write: Write, rng: random.Random) -> None:
    """Keeps some of the write's sectors. The file may or may not have grown over the lost ones."""
    if not write.data:
        return
    end = write.offset + len(write.data)
    if rng.random() < 0.5 and end > len(content):
        content.extend(bytes(end - len(content)))
    boundaries = [write.offset, *range((write.offset // SECTOR_BYTES + 1) * SECTOR_BYTES, end, SECTOR_BYTES), end]
    if rng.random() < 0.5:  # the usual tear: a prefix
        kept = set(range(rng.randrange(len(boundaries))))
    else:
        kept = {i for i in range(len(boundaries) - 1) if rng.random() < 0.5}
    for i in sorted(kept & set(range(len(boundaries) - 1))):
        first, last = boundaries[i], boundaries[i + 1]
        apply_edit(content, Write(0, first, write.data[first - write.offset : last - write.offset]))
