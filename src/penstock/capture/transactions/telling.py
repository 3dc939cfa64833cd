"""What is told of a transaction to those who look at a stream: how it ended, and where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.binlog.bodies import Query
from penstock.capture.transactions.frame_content import Ending, Told
from penstock.capture.transactions.kernel import Phase, Slot
from penstock.entries.format import gtid_text
from penstock.files import Buffer

if TYPE_CHECKING:
    from penstock.capture.transactions.machine import TransactionMachine


def told_of(  # noqa: PLR0917
    machine: TransactionMachine, start: int | None, ending: Ending, event: Buffer, xid: str, query: Query | None
) -> Told:
    """`start`: where the open transaction starts, if its parts do not tell. `event`: what ends it, or the statement."""
    state, reading = machine.packer.state, machine.reading
    outside = state[Slot.PHASE] == Phase.OUTSIDE
    if machine.open is not None:
        start = machine.open.start_pos
    elif start is None:
        start = int(state[Slot.POS if outside else Slot.TXN_POS])
    gtid = b"" if outside else machine.packer.gtid.tobytes()
    tag = reading.tags[int(state[Slot.TAG]) - 1] if state[Slot.TAG] and not outside else ""
    timestamp = int.from_bytes(bytes(event[:4]), "little")
    return Told(ending, reading.file, start, gtid_text(machine.need_fde().flavour, gtid, tag), timestamp, xid, query)
