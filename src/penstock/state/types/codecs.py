"""Encodings of keys and values (docs/formats/state.md). Nothing is ever unpickled.

For keys: `u64`, `i64`, `text`, `raw`, and tuples of them, `tuple_of(text, u64)`: their bytes sort as the values do. For
values also `json` and `msgpack`; model_codecs.py has dataclasses and pydantic models.
"""

from __future__ import annotations

import json as _json
import struct
from typing import Any, Protocol, TypeVar

import ormsgpack as _msgpack

from penstock.arguments import shown
from penstock.errors import BadInput, Corruption

T = TypeVar("T")

_U64 = struct.Struct(">Q")
_SIGN = 1 << 63
_END = b"\x00\x01"
_ESCAPED = b"\x00\xff"


class Codec(Protocol[T]):
    """Turns values into bytes and back. `name` is stored with the data, so its meaning must never change."""

    @property
    def name(self) -> str: ...

    def encode(self, value: T) -> bytes: ...

    def decode(self, raw: bytes) -> T: ...

    def encode_part(self, value: T) -> bytes:
        """The value as a part of a tuple: a reader can tell where it ends, and order is kept."""
        ...

    def decode_part(self, raw: bytes, at: int) -> tuple[T, int]:
        """The value at `at`, and where the next part starts."""
        ...

    def prefix(self, value: T) -> bytes:
        """The bytes with which the encoding of every key that starts with `value` begins."""
        ...


class _U64Codec:
    name = "u64"

    def encode(self, value: int) -> bytes:
        try:
            return _U64.pack(value)
        except struct.error as error:
            raise BadInput(f"{shown(value)} is no whole number of 64 bits without a sign") from error

    def decode(self, raw: bytes) -> int:
        return _whole(self.decode_part(raw, 0), raw)

    encode_part = encode

    def decode_part(self, raw: bytes, at: int) -> tuple[int, int]:
        if at + 8 > len(raw):
            raise _short()
        return _U64.unpack_from(raw, at)[0], at + 8

    prefix = encode


class _I64Codec:
    name = "i64"

    def encode(self, value: int) -> bytes:
        try:
            return _U64.pack(value + _SIGN)
        except (struct.error, TypeError) as error:
            raise BadInput(f"{shown(value)} is no whole number of 64 bits") from error

    def decode(self, raw: bytes) -> int:
        return _whole(self.decode_part(raw, 0), raw)

    encode_part = encode

    def decode_part(self, raw: bytes, at: int) -> tuple[int, int]:
        if at + 8 > len(raw):
            raise _short()
        return _U64.unpack_from(raw, at)[0] - _SIGN, at + 8

    prefix = encode


class _RawCodec:
    name = "raw"

    # As they are, without a call of Python's own; what is no buffer is refused (`bytes(5)` would be five zeros).
    encode = staticmethod(b"".__add__)
    decode = staticmethod(bytes)

    def encode_part(self, value: bytes) -> bytes:
        return self.encode(value).replace(b"\x00", _ESCAPED) + _END

    def decode_part(self, raw: bytes, at: int) -> tuple[bytes, int]:
        end = raw.find(b"\x00", at)
        while end >= 0 and raw[end : end + 2] == _ESCAPED:
            end = raw.find(b"\x00", end + 2)
        if end < 0 or raw[end : end + 2] != _END:
            raise _short()
        return raw[at:end].replace(_ESCAPED, b"\x00"), end + 2

    prefix = encode


class _TextCodec:
    name = "text"

    def encode(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise BadInput(f"{shown(value)} is no text")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"{value!a} has no UTF-8") from error

    def decode(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"a text is not UTF-8: {error}") from error

    def encode_part(self, value: str) -> bytes:
        return raw.encode_part(self.encode(value))

    def decode_part(self, source: bytes, at: int) -> tuple[str, int]:
        value, after = raw.decode_part(source, at)
        return value.decode(), after

    prefix = encode


class ValueCodec:
    """A codec for values: as a key its order means nothing, and prefixes are refused. Subclasses encode and decode."""

    name: str

    def encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def decode(self, raw: bytes) -> Any:
        raise NotImplementedError

    def encode_part(self, value: Any) -> bytes:
        return raw.encode_part(self.encode(value))

    def decode_part(self, source: bytes, at: int) -> tuple[Any, int]:
        value, after = raw.decode_part(source, at)
        return self.decode(value), after

    def prefix(self, value: Any) -> bytes:
        raise BadInput(f"{self.name} has no prefix order", hint="use text, numbers or tuples as keys")


class _JsonCodec(ValueCodec):
    name = "json"

    def encode(self, value: Any) -> bytes:
        try:
            return _json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise BadInput(f"this value has no JSON: {error}", hint="use a model codec, or convert it first") from error

    def decode(self, raw: bytes) -> Any:
        try:
            return _json.loads(raw)
        except ValueError as error:
            raise Corruption(f"a value is no JSON: {error}") from error


class _MsgpackCodec(ValueCodec):
    """For None, bool, 64-bit integers, floats, text, bytes, lists, and dicts with such keys; a tuple becomes a list."""

    name = "msgpack"
    _OPTIONS = (
        _msgpack.OPT_NON_STR_KEYS
        | _msgpack.OPT_PASSTHROUGH_DATACLASS
        | _msgpack.OPT_PASSTHROUGH_DATETIME
        | _msgpack.OPT_PASSTHROUGH_SUBCLASS
        | _msgpack.OPT_PASSTHROUGH_UUID
        | _msgpack.OPT_PASSTHROUGH_ENUM
    )

    def encode(self, value: Any) -> bytes:
        try:
            return bytes(_msgpack.packb(value, option=self._OPTIONS))
        except TypeError as error:
            raise BadInput(
                f"this value has no msgpack: {error}", hint="use a model codec, or convert it first"
            ) from error

    def decode(self, raw: bytes) -> Any:
        try:
            return _msgpack.unpackb(raw, option=_msgpack.OPT_NON_STR_KEYS)
        except ValueError as error:
            raise Corruption(f"a value is no msgpack: {error}") from error


class TupleCodec:
    """A tuple with one codec for each part. A shorter tuple encodes to a prefix."""

    def __init__(self, parts: tuple[Codec[Any], ...]) -> None:
        self._parts = parts

    @property
    def name(self) -> str:
        return f"tuple({','.join(part.name for part in self._parts)})"

    def encode(self, value: tuple[Any, ...]) -> bytes:
        if not isinstance(value, tuple | list) or len(value) != len(self._parts):
            raise BadInput(f"a key of {len(self._parts)} parts is needed, got {shown(value)}")
        return self.prefix(value)

    def decode(self, raw: bytes) -> tuple[Any, ...]:
        return _whole(self.decode_part(raw, 0), raw)

    encode_part = encode

    def decode_part(self, raw: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        values = []
        for part in self._parts:
            value, at = part.decode_part(raw, at)
            values.append(value)
        return tuple(values), at

    def prefix(self, value: tuple[Any, ...]) -> bytes:
        if not isinstance(value, tuple | list) or len(value) > len(self._parts):
            raise BadInput(f"a prefix of at most {len(self._parts)} parts is needed, got {shown(value)}")
        return b"".join(part.encode_part(item) for part, item in zip(self._parts, value, strict=False))


def _whole(decoded: tuple[T, int], raw: bytes) -> T:
    value, after = decoded
    if after != len(raw):
        raise Corruption(f"a key or value has {len(raw) - after} bytes too many")
    return value


def _short() -> Corruption:
    return Corruption("a key or value ends in the middle")


u64: Codec[int] = _U64Codec()
i64: Codec[int] = _I64Codec()
raw: Codec[bytes] = _RawCodec()
text: Codec[str] = _TextCodec()
json: Codec[Any] = _JsonCodec()
msgpack: Codec[Any] = _MsgpackCodec()


BY_NAME: dict[str, Codec[Any]] = {codec.name: codec for codec in (u64, i64, raw, text, json, msgpack)}


def by_name(name: str) -> Codec[Any] | None:
    """The codec of that name, or None: for tools that look at a state without its descriptors."""
    if not name.startswith("tuple(") or not name.endswith(")"):
        return BY_NAME.get(name)
    parts = [by_name(part) for part in _split(name[len("tuple(") : -1])]
    return None if None in parts else TupleCodec(tuple(part for part in parts if part is not None))


def _split(names: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(names):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(names[start:at])
            start = at + 1
    return [*parts, names[start:]]


def tuple_of(*parts: Codec[Any]) -> Codec[tuple[Any, ...]]:
    return TupleCodec(parts)
