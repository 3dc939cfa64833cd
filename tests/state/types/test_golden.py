"""Bytes of each version of keys, values, registrations and state changes in a frame, as other versions will read them.

The files under tests/golden/state-1 are never changed: a format that changes gets a new version and a new directory.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Corruption, NotSupported
from penstock.log import StateChange
from penstock.log.frames.format import decode_changes, decode_header, encode_changes, encode_frame, verify_body
from penstock.state import Namespace, StateDescriptor, model
from penstock.state.types import codecs
from penstock.state.types.registry import Registry

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "state-1"


@dataclasses.dataclass
class Order:
    number: int
    item: str


KEYS: dict[str, tuple[StateDescriptor[Any, Any], Any]] = {
    "key-u64": (StateDescriptor("s", "o", codecs.u64, codecs.raw), 258),
    "key-i64": (StateDescriptor("s", "o", codecs.i64, codecs.raw), -2),
    "key-text": (StateDescriptor("s", "o", codecs.text, codecs.raw), "grün"),
    "key-raw": (StateDescriptor("s", "o", codecs.raw, codecs.raw), b"\x00\xff"),
    "key-tuple": (
        StateDescriptor("s", "o", codecs.tuple_of(codecs.text, codecs.raw, codecs.u64, codecs.i64), codecs.raw),
        ("a\x00b", b"\x00", 7, -7),
    ),
}
VALUES: dict[str, tuple[StateDescriptor[Any, Any], Any]] = {
    "value-u64": (StateDescriptor("s", "o", codecs.u64, codecs.u64), 258),
    "value-raw": (StateDescriptor("s", "o", codecs.u64, codecs.raw, schema_version=65535), b"bytes"),
    "value-empty": (StateDescriptor("s", "o", codecs.u64, codecs.raw, schema_version=0), b""),
    "value-json": (StateDescriptor("s", "o", codecs.u64, codecs.json), {"b": [1, None, "ü"], "a": 1.5}),
    "value-msgpack": (StateDescriptor("s", "o", codecs.u64, codecs.msgpack), {"b": [1, None, b"\x00"], 7: "ü"}),
    "value-model": (StateDescriptor("s", "o", codecs.u64, model(Order)), Order(7, "pipe")),
}


def golden(name: str) -> bytes:
    return bytes.fromhex((GOLDEN / f"{name}.hex").read_text())


@pytest.mark.parametrize("name", KEYS)
def test_keys(name: str) -> None:
    descriptor, key = KEYS[name]
    assert descriptor.encode_key(key) == golden(name)
    assert descriptor.decode_key(golden(name)) == key
    with pytest.raises(NotSupported, match="key version 02 is not known"):
        descriptor.decode_key(b"\x02" + golden(name)[1:])


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    descriptor, value = VALUES[name]
    assert descriptor.encode_value(value) == golden(name)
    assert descriptor.decode_value(golden(name)) == value
    with pytest.raises(NotSupported, match="a value has version 2; this reader knows version 1"):
        descriptor.decode_value(b"\x02" + golden(name)[1:])
    for cut in range(len(golden(name))):
        with pytest.raises(Corruption):
            descriptor.decode_value(golden(name)[:cut])


def registered() -> Registry:
    registry = Registry()
    registry.register(StateDescriptor("source.position", "capture", codecs.text, codecs.json))
    registry.register(
        StateDescriptor("orders", "dedupe", codecs.u64, codecs.msgpack, schema_version=3, table="shop.orders", bucket=4)
    )
    registry.register_bytes(Namespace("", 0, "bench", "raw"))
    return registry


def test_registrations() -> None:
    expected = golden("registry").split(b"\n")
    changes = [registration.change() for registration in registered().registrations()]
    assert [change.key + b"=" + (change.value or b"") for change in changes] == expected
    again = Registry((b"", line.split(b"=", 1)[1]) for line in expected)
    assert again.registrations() == registered().registrations()
    assert again.namespace_of(2) == Namespace("shop.orders", 4, "dedupe", "orders")
    assert again.number_of(Namespace("", 0, "capture", "source.position")) == 1


CHANGES = (
    StateChange(0, b"\x01registry", b"value"),
    StateChange(1, b"\x01key", b"value", 3, 1_700_000_000_123),
    StateChange(1, b"\x01gone", None, 4),
    StateChange(1 << 40, b"", b""),
)


def test_changes_in_a_frame() -> None:
    raw = golden("frame")
    buffers, size = encode_frame(9, 2, 5, 1_700_000_000_000, 4096, (b"data",), CHANGES)
    assert b"".join(map(bytes, buffers)) == raw
    assert size == len(raw)
    header = decode_header(raw, 0, 9)
    assert decode_changes(verify_body(raw, 0, header), header.wall_ms) == CHANGES
    encoded = encode_changes(CHANGES, 7)
    assert encode_changes(encoded, 8) == encoded, "what is encoded already stays as it is"
    newer = bytearray(encode_changes(CHANGES[:1], 0))
    newer[8] = 3
    with pytest.raises(NotSupported, match="state operation 3 is not known"):
        decode_changes(bytes(newer))
