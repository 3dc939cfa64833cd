"""The spool of one changefeed: payloads that are encoded and not yet at the sink. It may be lost at any moment; whoever
restarts reads the rows from the log again. So nothing here is a promise to upstream but the order.

What it promises to staging, dispatchers and writers:

- Items of one dispatcher come out in the order in which they went in, markers among them. Dispatchers are spread over
  `limits.SHARDS` shards by a hash of their id; everything about one dispatcher is in one shard, behind one lock.
- `pick` hands out dispatchers with queued items, in turn; nothing ever scans all dispatchers. `pop` takes a batch.
- Bytes count from `stage` until `flushed` or `drop`, that is until the remote write is confirmed; memory and disk apart.
  They are what is really held: bodies, what an item takes beside its body, bytes read back, assembled files.
- `enqueue` never blocks and never refuses. Its *wake*, which lets upstream send more, runs once: at once, or kept back
  while wakes are *suppressed* (`limits.SpoolLimits`). A wake is no flush ack: `post_flush` runs only in `flushed`.
- The hard quota acts in `admit`, before something is staged, and bounds the files on disk.
- One thread moves the oldest payloads to segments on disk (docs/formats/spool-segment.md) while memory is above its low
  mark. An item is spilled also when a writer holds it: it is read back by `load` or `bodies`.
- While the disk does not take writes, wakes are suppressed and `alarm` says why; `admit` refuses once memory is full too.
- `fail` frees the share of a dispatcher, and ends what it still gets, markers too, with its error.

| file | what it does |
|---|---|
| `limits.py`, `items.py` | the limits and their names; what is in the queues |
| `account.py` | bytes, watermarks, wakes |
| `shard.py` | queues, active dispatchers, items by age |
| `segment_format.py`, `segment.py` | the bytes of a segment; its files |
| `segment_check.py` | looking into a segment from outside, for `penstock spool inspect` |
| `spiller.py`, `background.py` | moving to disk, rewriting, deleting; the thread that does it |
| `read_back.py` | how much writers may read back at once |
| `spool.py` | all of this behind one contract |
| `bodies.py` | the payloads of a batch, for a sink |
"""

from penstock.delivery.spool.account import Wake
from penstock.delivery.spool.bodies import SpooledBodies
from penstock.delivery.spool.items import DataItem, DrainMarkerItem, Place, SpoolItem
from penstock.delivery.spool.limits import SpoolLimits
from penstock.delivery.spool.segment import delete_segments
from penstock.delivery.spool.spool import Disk, Spool

__all__ = [
    "DataItem",
    "Disk",
    "DrainMarkerItem",
    "Place",
    "Spool",
    "SpoolItem",
    "SpoolLimits",
    "SpooledBodies",
    "Wake",
    "delete_segments",
]
