"""The lines of real MariaDB binlogs, folded, are the tables that the server ended with, as it printed them."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from typing import Any

import pytest

from penstock.operations.binlog.decode import DecodeOptions, decode_files
from tests.entries.test_decode_corpus import CODECS, CORPUS, IN_PART, IN_SCOPE
from tests.support import components

pytestmark = components.NEEDS_CORPUS

_ABSENT = object()
Row = dict[str, Any]


def folded(scenario: str) -> dict[str, list[Row]]:
    """The rows of each table after all changes. A row that is changed must be there."""
    out: list[bytes] = []
    decode_files([CORPUS / f"{scenario}.binlog"], DecodeOptions(), lambda data: out.append(bytes(data)))
    tables: dict[str, list[Row]] = {}
    for text in b"".join(out).decode().splitlines():
        line = json.loads(text)
        if line["op"] == "ddl":
            for change in line["changes"]:
                if change["kind"] in ("create", "drop", "truncate"):
                    tables[f"{change['schema']}.{change['table']}"] = []
        if line["op"] not in ("insert", "update", "delete"):
            continue
        rows = tables.setdefault(f"{line['schema']}.{line['table']}", [])
        old: Row = {}
        if line["before"] is not None:
            found = next(i for i, row in enumerate(rows) if _fits(row, line["before"]))
            old = rows.pop(found)
        if line["after"] is not None:
            rows.append({**old, **line["after"]})
    return tables


def _fits(row: Row, image: Row) -> bool:
    return all(row.get(name, value) == value for name, value in image.items())


def printed(kind: str, value: Any, charset: str) -> Any:
    """A value of a line as the truth files write it; of ENUM and SET only the name."""
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True).hex().upper()
    if kind.startswith("bit"):
        return f"{value:X}"
    if kind.startswith("year"):
        return f"{value:04}"
    if kind.startswith(("float", "double")):
        return float(value)
    if kind.startswith(("char", "varchar", "enum", "set")) or "text" in kind:
        return str(value).encode(charset).hex().upper()
    return str(value)


def same(kind: str, mine: Any, theirs: Any, value: Any) -> bool:
    theirs = theirs["f"] if isinstance(theirs, dict) else theirs
    if mine is None or theirs is None:
        return mine is theirs
    if isinstance(mine, float):
        return math.isclose(mine, float(theirs), rel_tol=1e-6 if kind.startswith("float") else 0)
    if kind.startswith(("enum", "set")):
        return bool(mine == theirs.partition("|")[2])
    if (
        isinstance(value, str)
        and mine != theirs
        and kind.startswith(("char", "varchar", "tiny", "text", "medium", "long"))
    ):
        return any(value.encode(codec, "replace").hex().upper() == theirs for codec in CODECS.values())
    return bool(mine == theirs)


@pytest.mark.parametrize("scenario", [*IN_SCOPE, *IN_PART])
def test_final_tables(scenario: str) -> None:
    truth = json.loads((CORPUS / f"{scenario}.truth.json").read_text())["final_state"]
    tables = folded(scenario)
    only = IN_PART.get(scenario)
    compared: Counter[str] = Counter()
    for name, expected in truth.items():
        if "rows" not in expected or (only is not None and name.partition(".")[2] not in only):
            continue
        key = expected["columns"][0][0]
        mine = sorted(tables[name], key=lambda row: str(row[key]))
        theirs = sorted(expected["rows"], key=lambda row: str(row[0]))
        assert len(mine) == len(theirs), name
        for row, want in zip(mine, theirs, strict=True):
            for (column, kind), value in zip(expected["columns"], want, strict=True):
                if column not in row:
                    continue  # an insert that left it to its default, with MINIMAL images; or a column added later
                found = row[column]
                assert same(kind, printed(kind, found, "utf-8"), value, found), (name, column, kind, found, value)
                compared[kind.partition("(")[0]] += 1
    assert compared
