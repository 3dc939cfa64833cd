"""What every crash explorer shares. Nothing here knows the log or state; each of them brings a world, facts and a program.

| file | what |
|---|---|
| `promises.py` | `Violation`, the error for a broken promise, and `must`; one that was swallowed on the way counts too |
| `stepping.py` | `threading` replaced by coroutines: a program becomes one deterministic sequence of operations |
| `world.py` | a machine in memory: its disk, metadata store and clock, and how the machine crashes |
| `process.py` | a second process on the machine, which shares its disk and metadata store, and nothing in memory |
| `program.py` | random sessions over a world that end cleanly, by a fault, by a power cut or by kill -9 |
| `explorer.py` | takes crash states while programs run, opens each of them, counts; processes and the command line |
| `planted.py` | a list of planted bugs that an explorer must catch |
"""
