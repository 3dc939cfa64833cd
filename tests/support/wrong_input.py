"""Wrong types and values for every argument of every public call, found by introspection.

A test module says of each argument of each call what is right for it (`Argument`). `cases` fails where a public call or
one of its arguments is missing in that table, so a new call cannot go without. `refuses` calls with what is wrong: with
values of the right type that make no sense, and with whatever hypothesis makes up of other types. Each time the call must
raise `BadInput` itself: neither another error, nor an answer that fails later, on another thread.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.errors import BadInput
from penstock.log import Pending, Position
from tests.support.budget import scaled


class Odd:
    """An object that cannot be hashed, whose truth cannot be told and which has any attribute."""

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.lists(st.one_of(st.integers(), st.text(max_size=3), st.none()), max_size=3),
    st.tuples(st.integers(), st.integers()),
    st.dictionaries(st.one_of(st.integers(), st.binary(max_size=3)), st.none(), min_size=1, max_size=2),
    st.sampled_from(
        [object(), Odd(), int, print, bytearray(b"x"), memoryview(b"x"), float("nan"), {1}, b"\xff", range(3)]
    ),
)


@dataclass(frozen=True)
class Argument:
    """`good`: makes a value that is taken. `fits`: whether a value made up has the right type, so that it may be taken. `bad`:
    values of the right type that must be refused."""

    good: Callable[[], Any]
    fits: Callable[[Any], bool]
    bad: tuple[Any, ...] = ()


def typed(good: Any, *kinds: type, bad: tuple[Any, ...] = ()) -> Argument:
    """An argument of these types."""
    return Argument(lambda: good, lambda value: isinstance(value, kinds), bad)


def optional(argument: Argument) -> Argument:
    return Argument(argument.good, lambda value: value is None or argument.fits(value), argument.bad)


FLAG = Argument(lambda: False, lambda value: True)  # any value is true or false
HUGE = 1 << 80
NOT_NUMBERS = (float("nan"), float("inf"), -1.5)


def count(good: int = 1, least: int = 0) -> Argument:
    return Argument(lambda: good, lambda value: type(value) is int, (least - 1, -HUGE, HUGE))


def seconds(good: float = 1.0) -> Argument:
    return Argument(lambda: good, lambda value: type(value) in (int, float), (-1, *NOT_NUMBERS, HUGE))


def function(good: Callable[..., Any]) -> Argument:
    return Argument(lambda: good, callable)


def component(good: Any) -> Argument:
    return Argument(lambda: good, lambda value: value is good)


BAD_NAMES = ("", "a\0b", "\ud800", "a/b", "..%2f", "x" * 300, "with space", "\u00e9")
NAME = Argument(lambda: "name", lambda value: isinstance(value, str), BAD_NAMES)
BAD_POSITIONS = (
    Position(-1, 0),
    Position(0, -2),
    Position(HUGE, 0),
    Position(0, HUGE),
    Position(1.0, 0),  # type: ignore[arg-type]
    Position(1, 0.0),  # type: ignore[arg-type]
    Position("1", 0),  # type: ignore[arg-type]
    Position(1, None),  # type: ignore[arg-type]
    Position([], 0),  # type: ignore[arg-type]
    Position(float("nan"), 0),  # type: ignore[arg-type]
    (1, 0),
)
POSITION = Argument(lambda: Position(1, 0), lambda value: isinstance(value, Position), BAD_POSITIONS)
TEXTS = Argument(
    lambda: {"a": "b"}, lambda value: value == {}, ({1: "x"}, {"x": 1}, {"\ud800": "x"}, {"x": "\ud800"}, ["a"])
)

Calls = Mapping[str, Mapping[str, Argument]]


def arguments_of(owner: Any) -> dict[str, tuple[str, ...]]:
    """The public calls of a class or module with arguments → the names of these."""
    found = {}
    for name, value in inspect.getmembers(owner, inspect.isroutine):
        if name.startswith("_") or (inspect.ismodule(owner) and getattr(value, "__module__", "") != owner.__name__):
            continue
        names = [one for one in inspect.signature(value).parameters if one not in ("self", "cls")]
        if names:
            found[name] = tuple(names)
    return found


def cases(owner: Any, calls: Calls) -> list[Any]:
    """(call, argument) for each argument of each public call. Raises where the table lacks one, or has one too many."""
    there = {(call, one) for call, names in arguments_of(owner).items() for one in names}
    known = {(call, one) for call, arguments in calls.items() for one in arguments}
    if there != known:
        raise AssertionError(
            f"{owner.__name__}: not in the table of wrong input: {sorted(there - known)}; gone: {sorted(known - there)}"
        )
    return [pytest.param(call, one, id=f"{call}-{one}") for call, one in sorted(known)]


def needed(call: Callable[..., Any], arguments: Mapping[str, Argument]) -> dict[str, Any]:
    """Good values for the arguments without a default: what is right together with others is not said here."""
    empty = inspect.Parameter.empty
    parameters = inspect.signature(call).parameters
    return {one: argument.good() for one, argument in arguments.items() if parameters[one].default is empty}


def refuses(call: Callable[..., Any], arguments: Mapping[str, Argument], wrong: str) -> None:
    """Calls it with everything that is wrong for the argument `wrong`, and demands `BadInput`, each time anew."""
    argument = arguments[wrong]

    def demand(value: Any) -> None:
        given = {**needed(call, arguments), wrong: value}
        with pytest.raises(BadInput):
            answer = call(**given)
            if isinstance(answer, Iterator):  # what is wrong may show at the first step, on this very thread
                next(answer, None)
            elif isinstance(answer, Pending):
                pytest.fail(f"{wrong}={value!a} was taken, and its answer will fail elsewhere, or never")

    for value in argument.bad:
        demand(value)

    @settings(max_examples=scaled(30), suppress_health_check=list(HealthCheck), database=None)
    @given(JUNK.filter(lambda value: not argument.fits(value)))
    def made_up(value: Any) -> None:
        demand(value)

    if argument is not FLAG:
        made_up()
