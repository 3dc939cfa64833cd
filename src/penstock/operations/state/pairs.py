"""What `penstock state` does: looks into the state of a log, for people and scripts.

Everything but `checkpoint` only looks: it takes no lock and works while another process owns the log. A program that knows
no descriptors shows keys and values by the codecs that the registry names, and as bytes where it does not know one.
"""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.clock import SYSTEM_CLOCK
from penstock.errors import BadInput, Corruption, PenstockError, Unavailable
from penstock.log import Log, LogReader, Position
from penstock.log.ledgers.holds import pins
from penstock.operations.log.tools import locate_log, open_reader, parse_position
from penstock.state import BucketState, CheckpointInfo, StateReader, StateSettings
from penstock.state.checkpoints.recovery import DIRECTORY, PIN, START_PIN, ProgressReporter, StateLocation, replay
from penstock.state.engines.engine import StateEngine
from penstock.state.engines.opening import open_engine
from penstock.state.engines.rocksdb.engine import DIRECTORY as ROCKSDB
from penstock.state.reader import find_checkpoints
from penstock.state.types import codecs
from penstock.state.types.descriptor import KEY_VERSION, split_value
from penstock.state.types.registry import Registration

_MODEL_CODECS = {"model(json)": codecs.json, "model(msgpack)": codecs.msgpack}


@dataclass(frozen=True, slots=True)
class StoreLine:
    """A store, counted."""

    registration: Registration
    keys: int
    bytes: int

    @property
    def name(self) -> str:
        return str(self.registration.namespace)


@dataclass(frozen=True, slots=True)
class StateSummary:
    """What `ls` shows. `pinned`: entries from there on stay for the sake of the state; None: it has none yet."""

    directory: Path
    engine: str
    position: Position
    stores: list[StoreLine]
    checkpoints: list[CheckpointInfo]
    pinned: Position | None


@dataclass(frozen=True, slots=True)
class Pair:
    """A key and its value as far as their codecs are known; `raw_value` where not."""

    store: str
    key: Any
    value: Any
    schema: int | None
    raw_key: bytes
    raw_value: bytes


@dataclass(frozen=True, slots=True)
class StateCheck:
    """What `verify` found. `ways`: from each checkpoint, and from the whole log where it is there, to the same state."""

    directory: Path
    checkpoints: int
    ways: int
    keys: int
    faults: list[str]

    @property
    def sound(self) -> bool:
        return not self.faults


def settings_for(directory: Path) -> StateSettings:
    """For the engine that wrote the checkpoints that are there."""
    written = directory / DIRECTORY / ROCKSDB
    return StateSettings(engine="rocksdb" if written.is_dir() else "native")


@contextlib.contextmanager
def open_state(path: Path, at: str | None = None) -> Iterator[StateReader]:
    with open_reader(path) as reader:
        settings = settings_for(reader.directory)
        state = StateReader.open(reader, at=parse_position(at) if at else None, settings=settings)
        try:
            yield state
        finally:
            state.close()


def _place(reader: LogReader) -> StateLocation:
    return StateLocation(reader, reader.files, SYSTEM_CLOCK, settings_for(reader.directory), read_only=True)


# -- ls ----------------------------------------------------------------------------------------------------------


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
        place = _place(reader)
        return StateSummary(
            reader.directory,
            place.settings.engine,
            state.position,
            stores,
            find_checkpoints(place),
            min((held[name] for name in (PIN, START_PIN) if name in held), default=None),
        )


# -- get, dump ---------------------------------------------------------------------------------------------------


def find_store(state: StateReader, name: str) -> Registration:
    """By its whole name, or by the last part of it where that is enough. Raises `BadInput` that names those there are."""
    stores = state.stores()
    found = [one for one in stores if str(one.namespace) == name] or [
        one for one in stores if one.namespace.state == name
    ]
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(one.namespace) for one in found or stores) or "none"
    raise BadInput(f"{'more than one store is' if found else 'there is no store'} called {name!r}", hint=names)


def get_pair(path: Path, store: str, key: str, at: str | None = None) -> Pair | None:
    """One key, given as text: a number, a text, a JSON list for a tuple, or 0x and hexadecimal digits for its raw bytes."""
    with open_state(path, at) as state:
        registration = find_store(state, store)
        raw_key = parse_key(registration, key)
        value = state.engine.get(registration.number, raw_key)
        return None if value is None else describe(registration, raw_key, value)


def dump_pairs(
    path: Path, store: str | None, prefix: str | None, limit: int | None, at: str | None = None
) -> Iterator[Pair]:
    """Every pair of a store, or of all of them, in order of the raw keys."""
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
    """Decoded as far as the codecs are known to this program."""
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
    with contextlib.suppress(PenstockError):  # most codecs of programs are JSON inside
        return codecs.json.decode(payload)
    return payload


def shown(value: Any) -> Any:
    """For JSON: bytes as text where they are printable, else as 0x and hexadecimal digits; tuples as lists."""
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


# -- checkpoint --------------------------------------------------------------------------------------------------


def checkpoint_state(path: Path, *, compact: bool) -> CheckpointInfo | None:
    """Becomes the owner, and makes a checkpoint of everything that is durable. None where the log has no state."""
    directory = locate_log(path)
    settings = settings_for(directory)
    try:
        log = Log.open(directory)
    except Unavailable as error:
        raise Unavailable(
            f"a checkpoint is written by the log's owner, and {error.message}",
            hint="a running flow writes its own, whenever a ledger is full; stop it to write one by hand",
        ) from error
    with log:
        state = BucketState.open(log, settings)
        info = state.checkpoint()
        if info is not None and compact:
            state.engine.compact()
            return state.checkpoints()[0]
        return info


# -- verify ------------------------------------------------------------------------------------------------------


def verify_state(path: Path) -> StateCheck:
    """Reads every byte of every checkpoint, and sees that each of them, with the frames after it, leads to the same state."""
    faults: list[str] = []
    with open_reader(path) as reader:
        place = _place(reader)
        end = reader.end()
        found = find_checkpoints(place)
        with _engine(place, None) as engine:
            faults += [str(finding) for finding in engine.verify()]
        results: list[tuple[str, int, int]] = []
        starts: list[Position | None] = [info.position for info in found]
        if reader.complete or START_PIN in pins(reader.metadata, reader.name):
            starts.append(None)
        for start in starts:
            way = "the whole log" if start is None else f"the checkpoint at {start}"
            try:
                results.append((way, *_digest(place, start, end)))
            except Corruption as error:
                faults.append(f"{way}: {error.message}")
        for way, digest, _ in results[1:]:
            if digest != results[0][1]:
                faults.append(f"{way} leads to another state than {results[0][0]}")
        if not results and not faults:
            faults.append("neither a checkpoint nor the log holds all of the state")
        return StateCheck(reader.directory, len(found), len(results), results[0][2] if results else 0, faults)


def _engine(place: StateLocation, at: Position | None) -> StateEngine:
    return open_engine(
        place.settings.engine, place.directory, files=place.files, settings=place.settings, read_only=True, at=at
    )


def _digest(place: StateLocation, start: Position | None, end: Position) -> tuple[int, int]:
    """(checksum, keys) of the state at `end`, by way of that checkpoint or (None) of the whole log."""
    with open_engine("native", None) if start is None else _engine(place, start) as engine:
        reader = place.reader
        first = reader.first if start is None else reader.next(start)
        replay(reader, engine, first, end, ProgressReporter(None, time.perf_counter()))
        crc = keys = 0
        with engine.create_snapshot() as snapshot:
            for number in snapshot.namespaces():
                for key, value in snapshot.iterate(number):
                    head = b"%d,%d,%d:" % (number, len(key), len(value))
                    crc = zlib.crc32(value, zlib.crc32(key, zlib.crc32(head, crc)))
                    keys += 1
        return crc, keys
