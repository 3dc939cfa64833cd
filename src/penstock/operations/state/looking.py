"""Looks into the state of the log that a command names, read-only: `penstock state ls`, `get` and `dump`.

This program does not have the stores' descriptors. It shows keys and values by the codecs that the registry names, and
as bytes where it does not know a codec.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import BadInput, PenstockError
from penstock.log import LogReader, Position
from penstock.log.ledgers.holds import pins
from penstock.operations.log.locate import open_reader, parse_position
from penstock.state import CheckpointInfo, StateReader, StateSettings
from penstock.state.checkpoints.recovery import DIRECTORY, PIN, START_PIN, StateLocation
from penstock.state.engines.rocksdb.engine import DIRECTORY as ROCKSDB
from penstock.state.reader import find_checkpoints
from penstock.state.types import codecs
from penstock.state.types.descriptor import KEY_VERSION, split_value
from penstock.state.types.registry import Registration

_MODEL_CODECS = {"model(json)": codecs.json, "model(msgpack)": codecs.msgpack}


def settings_for(directory: Path) -> StateSettings:
    """Settings that name the engine of the checkpoints in the log's directory."""
    written = directory / DIRECTORY / ROCKSDB
    return StateSettings(engine="rocksdb" if written.is_dir() else "native")


@contextlib.contextmanager
def open_state(path: Path, at: str | None = None) -> Iterator[StateReader]:
    """The state after the entry `at`, or at the durable end; closed at the end of the block."""
    with open_reader(path) as reader:
        settings = settings_for(reader.directory)
        state = StateReader.open(reader, at=parse_position(at) if at else None, settings=settings)
        try:
            yield state
        finally:
            state.close()


def location_of(reader: LogReader) -> StateLocation:
    """Where the state of the reader's log is, for reading alone."""
    return StateLocation(reader, reader.files, SYSTEM_CLOCK, settings_for(reader.directory), read_only=True)


@dataclass(frozen=True, slots=True)
class StoreLine:
    """A store, with the number of its keys and the bytes of keys and values."""

    registration: Registration
    keys: int
    bytes: int

    @property
    def name(self) -> str:
        return str(self.registration.namespace)


@dataclass(frozen=True, slots=True)
class StateSummary:
    """A state as `penstock state ls` shows it. `pinned`: entries from there on are kept for its sake; None: no pin
    yet."""

    directory: Path
    engine: str
    position: Position
    stores: list[StoreLine]
    checkpoints: list[CheckpointInfo]
    pinned: Position | None


def summarize_state(path: Path) -> StateSummary:
    """Every store with its size, and the checkpoints; as of the durable end."""
    with open_state(path) as state, open_reader(path) as reader:
        stores = []
        with state.engine.create_snapshot() as snapshot:
            for registration in state.stores():
                keys = size = 0
                for key, value in snapshot.iterate(registration.number):
                    keys += 1
                    size += len(key) + len(value)
                stores.append(StoreLine(registration, keys, size))
        held = pins(reader.metadata, reader.name)
        location = location_of(reader)
        return StateSummary(
            reader.directory,
            location.settings.engine,
            state.position,
            stores,
            find_checkpoints(location),
            min((held[name] for name in (PIN, START_PIN) if name in held), default=None),
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """A key and its value, decoded where their codecs are known; the raw bytes in any case."""

    store: str
    key: Any
    value: Any
    schema: int | None
    raw_key: bytes
    raw_value: bytes


def find_store(state: StateReader, name: str) -> Registration:
    """The store by its whole name, or by its last part if only one store has it. Raises `BadInput` that lists the
    stores."""
    stores = state.stores()
    found = [one for one in stores if str(one.namespace) == name] or [
        one for one in stores if one.namespace.state == name
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(one.namespace) for one in found or stores) or "none"
    raise BadInput(f"{'more than one store is' if found else 'there is no store'} called {name!r}", hint=names)


def get_pair(path: Path, store: str, key: str, at: str | None = None) -> Pair | None:
    """The value of one key, or None. The key is a number, a text, a JSON list for a tuple, or 0x… for raw bytes."""
    with open_state(path, at) as state:
        registration = find_store(state, store)
        raw_key = parse_key(registration, key)
        value = state.engine.get(registration.number, raw_key)
        return None if value is None else describe(registration, raw_key, value)


def dump_pairs(
    path: Path, store: str | None, prefix: str | None, limit: int | None, at: str | None = None
) -> Iterator[Pair]:
    """Every pair of one store, or of all stores, in the order of the raw keys."""
    with open_state(path, at) as state, state.engine.create_snapshot() as snapshot:
        stores = [find_store(state, store)] if store else state.stores()
        if prefix is not None and store is None:
            raise BadInput("a prefix is one of the keys of a store", hint="name the store")
        yield from islice(_pairs(snapshot, stores, prefix), limit)


def _pairs(snapshot: Any, stores: list[Registration], prefix: str | None) -> Iterator[Pair]:
    for registration in stores:
        start = parse_prefix(registration, prefix) if prefix is not None else b""
        for key, value in snapshot.iterate(registration.number, start):
            if not key.startswith(start):
                break
            yield describe(registration, key, value)


def parse_key(registration: Registration, text: str) -> bytes:
    return _encoded(registration, text, "encode")


def parse_prefix(registration: Registration, text: str) -> bytes:
    return _encoded(registration, text, "prefix")


def _encoded(registration: Registration, text: str, how: str) -> bytes:
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError as error:
            raise BadInput(f"{text!r} is not hexadecimal: {error}") from error
    if not registration.typed:
        return text.encode()
    codec = codecs.by_name(registration.key)
    if codec is None:
        raise BadInput(f"keys of {registration.namespace} are {registration.key}", hint="give raw bytes as 0x…")
    value: Any = text
    if registration.key in ("u64", "i64"):
        try:
            value = int(text)
        except ValueError:
            raise BadInput(f"keys of {registration.namespace} are numbers, not {text!r}") from None
    elif registration.key == "raw":
        value = text.encode()
    elif registration.key.startswith("tuple("):
        value = _tuple_of(registration, text)
    encode = codec.encode if how == "encode" else codec.prefix
    try:
        return KEY_VERSION + encode(value)
    except (TypeError, AttributeError) as error:
        raise BadInput(f"{text!r} is no key of {registration.namespace}: {registration.key}") from error


def _tuple_of(registration: Registration, text: str) -> tuple[Any, ...]:
    try:
        value = json.loads(text)
        return tuple(value) if isinstance(value, list) else (value,)
    except ValueError:
        raise BadInput(
            f"keys of {registration.namespace} are {registration.key}",
            hint='give a JSON list, such as ["shop", "orders", 0]',
        ) from None


def describe(registration: Registration, raw_key: bytes, raw_value: bytes) -> Pair:
    """The pair, decoded as far as this program knows the codecs."""
    key: Any = raw_key
    value: Any = raw_value
    schema = None
    if registration.typed:
        key_codec = codecs.by_name(registration.key)
        with contextlib.suppress(PenstockError):
            key = key_codec.decode(raw_key[len(KEY_VERSION) :]) if key_codec else raw_key
        with contextlib.suppress(PenstockError):
            schema, payload = split_value(str(registration.namespace), raw_value)
            value = _decoded(registration, schema, payload)
    return Pair(str(registration.namespace), shown(key), shown(value), schema, raw_key, raw_value)


def _decoded(registration: Registration, schema: int, payload: bytes) -> Any:
    written = registration.schemas.get(schema)
    name = written.value if written else registration.value
    codec = codecs.by_name(name) or _MODEL_CODECS.get(name)
    if codec is not None:
        return codec.decode(payload)
    with contextlib.suppress(PenstockError):  # an unknown codec is most often one over JSON
        return codecs.json.decode(payload)
    return payload


def shown(value: Any) -> Any:
    """A value as JSON can hold it: bytes as text if printable, else as 0x and hexadecimal digits; tuples as lists."""
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):
            text = value.decode()
            if text.isprintable():
                return text
        return f"0x{value.hex()}"
    if isinstance(value, dict):
        return {str(shown(key)): shown(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [shown(inner) for inner in value]
    return value
