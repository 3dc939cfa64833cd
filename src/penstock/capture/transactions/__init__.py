"""From raw events to transactions, and from these to the content of frames.

| module | job |
|---|---|
| `kernel.py` | the inner loop: headers of many events, the common ones decided without Python |
| `classify.py` | what a rare event is, by its bytes alone |
| `machine.py` | the open transaction: its states, and how each of them ends |
| `statements.py` | statements: savepoints, rollbacks, DDL |
| `xa.py` | XA groups: held when prepared, appended again when they commit |
| `packer.py` | kept events and records → entries |
| `reading.py` | file, offset and GTIDs: the position that the next frame may carry |
| `telling.py` | how transactions ended, for those who look at a stream |
| `frame_content.py` | what goes into one frame |
| `cutter.py` | chunks in, frames out: the loop around the kernel |
"""
