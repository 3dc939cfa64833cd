"""What the `rocksdb` engine reads: a RocksDB database, through rocksdict, as the base below the layers in memory
(overlay.py). Keys and the position record: docs/formats/checkpoint.md, last section."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import Corruption, NotSupported, PenstockError
from penstock.state.engines.refusals import refusal

if TYPE_CHECKING:
    from rocksdict import Cache, Options, Rdict

POSITION = b"p"  # the key of the position record; every other key begins with a namespace, so it is longer
NAMESPACE = struct.Struct(">Q")
_BLOOM_BITS = 10  # for each key: one lookup in a hundred of a key that is not there reads a block in vain


def load() -> Any:
    """The module rocksdict. Raises `NotSupported` where it is not installed."""
    try:
        import rocksdict
    except ImportError as error:
        raise NotSupported(
            "the state engine 'rocksdb' needs the package rocksdict", hint="pip install 'penstock[rocksdb]'"
        ) from error
    return rocksdict


class Database:
    """A RocksDB database. Garbage collection closes the one of a checkpoint: snapshots may outlive the engine."""

    def __init__(self, path: Path, cache: Cache, *, read_only: bool) -> None:
        """Raises what rocksdict raises: instances of `Exception`."""
        library = load()
        self.path = path
        access = library.AccessType.read_only() if read_only else library.AccessType.read_write()
        self.db: Rdict = library.Rdict(str(path), options_with(cache), access_type=access)

    def record(self) -> dict[str, Any] | None:
        raw = self.db.get(POSITION)
        return None if raw is None else json.loads(raw)

    def sst_bytes(self) -> int:
        return int(self.db.property_int_value("rocksdb.total-sst-files-size") or 0)

    def keys(self) -> int:
        return max(int(self.db.property_int_value("rocksdb.estimate-num-keys") or 0) - 1, 0)


def options_with(cache: Cache) -> Options:
    library = load()
    blocks = library.BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(cache)
    options: Options = library.Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(blocks)
    options.set_keep_log_file_num(1)
    return options


class RocksBase:
    """The `Base` (overlay.py) that one checkpoint makes."""

    getters: ClassVar[Mapping[int, Any]] = {}

    def __init__(self, database: Database) -> None:
        self.database = database
        self._size = max(int(database.db.property_int_value("rocksdb.estimate-live-data-size") or 0), 1)

    def get(self, namespace: int, key: bytes) -> bytes | None:
        try:
            return self.database.db.get(NAMESPACE.pack(namespace) + key)
        except Exception as error:
            raise self._bad(error) from error

    def iterate(
        self, namespace: int, start: bytes, end: bytes | None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if reverse:
            yield from self._backwards(namespace, start, end)
            return
        prefix = NAMESPACE.pack(namespace)
        try:
            found = self.database.db.iter()
            found.seek(prefix + start)
            while found.valid():
                key = found.key()
                if len(key) < NAMESPACE.size:
                    found.next()
                    continue
                if key[: NAMESPACE.size] != prefix or (end is not None and key[NAMESPACE.size :] >= end):
                    return
                yield key[NAMESPACE.size :], found.value()
                found.next()
            found.status()
        except Exception as error:
            raise self._bad(error) from error

    def _backwards(self, namespace: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        prefix = NAMESPACE.pack(namespace)
        bound = prefix + end if end is not None else NAMESPACE.pack(namespace + 1) if namespace + 1 < 1 << 64 else None
        try:
            found = self.database.db.iter()
            if bound is None:
                found.seek_to_last()
            else:
                found.seek_for_prev(bound)
            while found.valid():
                key = found.key()
                if len(key) < NAMESPACE.size or key[: NAMESPACE.size] > prefix or key == bound:
                    found.prev()
                    continue
                if key < prefix + start:
                    break
                yield key[NAMESPACE.size :], found.value()
                found.prev()
            found.status()
        except Exception as error:
            raise self._bad(error) from error

    def namespaces(self) -> Iterable[int]:
        found = self.database.db.iter()
        found.seek_to_first()
        numbers = []
        while found.valid():
            key = found.key()
            if len(key) < NAMESPACE.size:
                found.next()
                continue
            (number,) = NAMESPACE.unpack_from(key)
            numbers.append(number)
            if number == (1 << 64) - 1:
                break
            found.seek(NAMESPACE.pack(number + 1))
        found.status()
        return numbers

    def size(self) -> int:
        return self._size

    def read_all(self) -> None:
        """Reads every block and checks its checksum. Raises `Corruption`, or what `refusal` gives."""
        try:
            found = self.database.db.iter()
            found.seek_to_first()
            while found.valid():
                found.next()
            found.status()
        except Exception as error:
            raise self._bad(error) from error

    def _bad(self, error: Exception) -> PenstockError:
        return refusal(self.database.path, error) or Corruption(
            f"{self.database.path}: {error}", hint="the state is read again from another checkpoint"
        )
