"""Values that are dataclasses or pydantic models, as JSON or msgpack of their fields (docs/formats/state.md).

    model(OrderState)                      # "model(json)"; OrderState: a dataclass or a pydantic model
    model(OrderState, codecs.msgpack)      # "model(msgpack)"

Pydantic converts and checks in both directions, so nested models, dates, decimals and enums work, and a value that does
not fit its type is refused. The model's JSON Schema is kept in the registry: a field that was changed without a new
schema version is noticed when the store is opened (evolution.py).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from penstock.errors import BadInput, Corruption
from penstock.state.types import codecs
from penstock.state.types.codecs import Codec, ValueCodec

T = TypeVar("T")


class ModelCodec(ValueCodec, Generic[T]):
    """The codec of one model, inside `inner`; see the module."""

    def __init__(self, kind: type[T], inner: Codec[Any]) -> None:
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(kind)
            self.schema: dict[str, Any] = self._adapter.json_schema(mode="serialization")
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise BadInput(
                f"{kind!r} cannot be stored: {error.message}", hint="its fields need types that pydantic knows"
            ) from error
        self._kind = kind
        self._inner = inner
        self.name = f"model({inner.name})"

    def encode(self, value: T) -> bytes:
        if not isinstance(value, self._kind):
            raise BadInput(f"a value is a {type(value).__name__}, not a {self._kind.__name__}")
        try:
            return self._inner.encode(self._adapter.dump_python(value, mode="json"))
        except ValueError as error:  # from pydantic: a field holds something that its type cannot express
            raise BadInput(f"a {self._kind.__name__} cannot be written: {error}") from error

    def decode(self, raw: bytes) -> T:
        try:
            return self._adapter.validate_python(self._inner.decode(raw))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise Corruption(
                f"a stored {self._kind.__name__} does not fit its type: {where}: {first['msg']}",
                hint="raise the schema version and register a migration from the old one",
            ) from error


def model(kind: type[T], inner: Codec[Any] = codecs.json) -> Codec[T]:
    """The codec of a dataclass or pydantic model, inside `codecs.json` or `codecs.msgpack`."""
    if inner.name not in (codecs.json.name, codecs.msgpack.name):
        raise BadInput(f"a model cannot be written as {inner.name}", hint="codecs.json or codecs.msgpack")
    return ModelCodec(kind, inner)
