"""Which keys a place in the configuration may have, for whoever wrote one that it does not have."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel


def nearest_key(model: type[BaseModel], location: Sequence[int | str]) -> str | None:
    """The known key that is most like the last one of `location`; None where none is like it."""
    if not location:
        return None
    known = sorted({key for one in _models_at(model, location[:-1]) for key in _keys(one)})
    found = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.6)
    return found[0] if found else None


def _models_at(model: type[BaseModel], location: Sequence[int | str]) -> list[type[BaseModel]]:
    """The models that may stand at the place; several where a `type` chooses, and the tag of the choice may be in it."""
    places: list[Any] = [model]
    for part in location:
        places = [child for place in places for child in _children(place, part)] or places
    return [one for place in places for one in _models(place)]


def _children(place: Any, part: int | str) -> Iterator[Any]:
    for one in _models(place):
        for name, field in one.model_fields.items():
            if part in (name, field.alias):
                yield field.annotation
    if typing.get_origin(place) is dict:
        yield typing.get_args(place)[1]


def _keys(model: type[BaseModel]) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield field.alias or name


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models in an annotation, through `Annotated` and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        return
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for inner in typing.get_args(annotation):
            yield from _models(inner)
