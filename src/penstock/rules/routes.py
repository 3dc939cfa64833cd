"""Under which name a table is at the sink. A name there belongs to one table: its files are in one order, and readers know
one schema. So a route of a pattern keeps what the pattern leaves open: `{schema}`, `{table}`."""

from __future__ import annotations

import re

Name = tuple[str, str]

_WILD = re.compile(r"[*?\[]")
_PLACE = re.compile(r"\{([^{}]*)\}")


def is_pattern(table: str) -> bool:
    return _WILD.search(table) is not None


def checked_route(pattern: str, route: str) -> str:
    """The route. Raises `ValueError` if it names no table, or one for several tables."""
    schema, point, table = route.partition(".")
    if not point or not schema or not table:
        raise ValueError(f"route: {route!r} names no table: write schema.table")
    for place in _PLACE.findall(route):
        if place not in ("schema", "table"):
            raise ValueError(f"route: {{{place}}} is not known; there are {{schema}} and {{table}}")
    if set("{}") & set(_PLACE.sub("", route)):
        raise ValueError(f"route: {route!r} has a brace without its other half")
    for part, open_part in zip(("schema", "table"), pattern.partition(".")[::2], strict=True):
        if is_pattern(open_part) and f"{{{part}}}" not in route:
            raise ValueError(
                f"route: several tables may match {pattern}, and {route} can be only one of them; "
                f"put {{{part}}} into it, for example {_example(route, part)}"
            )
    return route


def _example(route: str, part: str) -> str:
    schema, _, table = route.partition(".")
    return f"{schema}_{{schema}}.{table}" if part == "schema" else f"{schema}.{table}_{{table}}"


def routed(route: str, name: Name) -> Name:
    """The name of the table at the sink."""
    schema, _, table = route.partition(".")
    return _filled(schema, name), _filled(table, name)


def _filled(text: str, name: Name) -> str:
    return _PLACE.sub(lambda match: name[0] if match[1] == "schema" else name[1], text)
