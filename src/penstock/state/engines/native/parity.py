"""What makes a run sound before anything names it: it is read back whole, and gets its parity.

Both are one pass: the data is read back from the disk in the order of the stripes, compared with the checksums that
were made while it was written, and joined by XOR into the pages of parity (docs/formats/checkpoint.md, "Parity").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.errors import StorageFailed
from penstock.files import Buffer, File
from penstock.files.seam import REPAIR_HINT
from penstock.state.engines.key_kernels import Bytes
from penstock.state.engines.native import kernels
from penstock.state.engines.native.format import PAGE_BYTES
from penstock.state.engines.native.pages import READ_PAGES, PageLayout

Checksums = npt.NDArray[np.uint32]


def read_back(file: File, layout: PageLayout, checksums: Checksums) -> tuple[list[bytes], Checksums]:
    """The parity of the data in `file`, in portions and in the order of the file, and the checksums of its pages.

    Raises `StorageFailed` where the data is not what was written.
    """
    file.forget_cached()
    stripes = layout.parity
    first = layout.data % stripes  # of the stripes: the pages of parity go on where the pages of data end
    portions: list[bytes] = []
    parity_checksums: list[Checksums] = []
    for start, end in ((first, stripes), (0, first)):
        for at in range(start, end, READ_PAGES):
            count = min(READ_PAGES, end - at)
            joined = np.zeros(count * PAGE_BYTES, np.uint8)
            for page in range(at, layout.data, stripes):
                pages = min(count, layout.data - page)
                raw = _compared(file, layout, page, pages, checksums)
                np.bitwise_xor(joined[: len(raw)], raw, out=joined[: len(raw)])
            joined = joined[: count * layout.parity_page_bytes]
            some = np.empty(count, np.uint32)
            kernels.page_checksums(joined, len(joined), some)
            portions.append(joined.tobytes())
            parity_checksums.append(some)
    return portions, np.concatenate(parity_checksums)


def _compared(file: File, layout: PageLayout, page: int, count: int, checksums: Checksums) -> Bytes:
    start = page * PAGE_BYTES
    raw = np.frombuffer(_read(file, start, min(count * PAGE_BYTES, layout.data_bytes - start)), np.uint8)
    found = np.empty(-(-len(raw) // PAGE_BYTES), np.uint32)
    kernels.page_checksums(raw, len(raw), found)
    wrong = np.flatnonzero(found != checksums[page : page + len(found)])
    if len(wrong) or len(found) != count:
        raise _differs(file, start + (int(wrong[0]) * PAGE_BYTES if len(wrong) else len(raw)))
    return raw


def compare_end(file: File, layout: PageLayout, end: Sequence[Buffer]) -> None:
    """Reads what follows the data back. Raises `StorageFailed` where it is not `end`."""
    file.forget_cached()
    at = layout.data_bytes
    for part in end:
        if _read(file, at, len(part)) != part:
            raise _differs(file, at)
        at += len(part)
    if file.size() != at:
        raise _differs(file, at)


def _read(file: File, at: int, size: int) -> bytes:
    try:
        return file.read_at(at, size)
    except OSError as error:
        raise StorageFailed(
            f"{file.path}: what was written at {at} cannot be read: {error}", hint=REPAIR_HINT
        ) from error


def _differs(file: File, at: int) -> StorageFailed:
    return StorageFailed(f"{file.path}: the disk does not hold at {at} what was written there", hint=REPAIR_HINT)
