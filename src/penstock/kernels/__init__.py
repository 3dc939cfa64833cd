"""How inner loops are compiled, and the ones that several packages share.

| module | job |
|---|---|
| `compile.py` | the `kernel` decorator: numba without the GIL, cached on disk |
| `places.py` | where that cache lies: only where nobody else can write |
| `copy.py` | copying bytes between arrays, as one memcpy |
| `crc32.py` | CRC32, which the events of a binlog end with |
| `crc32c.py` | CRC32C over large buffers |
| `polynomials.py` | the tables and constants of both |

Importing any of these modules imports numba, which takes a good part of a second: commands that may not need a kernel
import it inside the function that does.
"""
