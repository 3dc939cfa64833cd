"""Under which name a table is at the sink. A name there is one table: its files are in one order, and readers know one
schema. A route keeps tables apart by `{schema}` and `{table}`, or gathers all that its pattern matches into one."""

from __future__ import annotations

import re

Name = tuple[str, str]

_WILD = re.compile(r"[*?]")
_PLACE = re.compile(r"\{([^{}]*)\}")


def is_pattern(table: str) -> bool:
    return _WILD.search(table) is not None


def checked_route(route: str) -> str:
    """The route. Raises `ValueError` if it names no table."""
    schema, point, table = route.partition(".")
    if not point or not schema or not table:
        raise ValueError(f"route: {route!r} names no table: write schema.table")
    for place in _PLACE.findall(route):
        if place not in ("schema", "table"):
            raise ValueError(f"route: {{{place}}} is not known; there are {{schema}} and {{table}}")
    if set("{}") & set(_PLACE.sub("", route)):
        raise ValueError(f"route: {route!r} has a brace without its other half")
    return route


def gathers(pattern: str, route: str) -> bool:
    """Whether several tables that match the pattern are one at the sink: the route does not have what the pattern leaves
    open."""
    parts = zip(("schema", "table"), pattern.partition(".")[::2], strict=True)
    return any(is_pattern(open_part) and f"{{{part}}}" not in route for part, open_part in parts)


def routed(route: str, name: Name) -> Name:
    """The name of the table at the sink."""
    schema, _, table = route.partition(".")
    return _filled(schema, name), _filled(table, name)


def _filled(text: str, name: Name) -> str:
    return _PLACE.sub(lambda match: name[0] if match[1] == "schema" else name[1], text)
