"""`make bench`: measures, prints a table, writes bench/results.json.

    python -m bench.run [GROUP ...]     without a name: every group

A group is a module of this package with `measure() -> Iterator[Result]`. The calibration runs before each group, and
its rows are kept with those of the group. Rows of groups that did not run stay in the file, and every row keeps its
place.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import calibration
from bench.result import Result
from tools.components import MissingComponent

GROUPS = ("pipeline", "running", "load", "log", "state", "binlog", "sink", "verify")
RESULTS = Path(__file__).with_name("results.json")


def table(results: Iterable[Result]) -> Table:
    made = Table(title="Penstock beside its peers, measured in this run")
    for heading in ("name", "value", "unit", "peer", "peer value", "ratio", "goal", "met"):
        made.add_column(heading, justify="left" if heading in ("name", "unit", "peer") else "right")
    for result in results:
        made.add_row(
            result.name,
            _number(result.value),
            result.unit,
            result.peer or "",
            _number(result.peer_value),
            "" if result.ratio is None else f"{result.ratio:.2f}×",
            result.goal_text(),
            {True: "yes", False: "no", None: ""}[result.met],
        )
    return made


def keep(path: Path, group: str, measured: Iterable[Result]) -> None:
    """Replaces the group's rows in the file, each in its place; new rows follow the group's last. Other groups' rows
    stay."""
    rows: list[dict[str, object]] = json.loads(path.read_text()) if path.exists() else []
    new = {_key(row): row for row in ({"group": group, **result.to_json()} for result in measured)}
    merged: list[dict[str, object]] = []
    end = len(rows)  # where new rows of the group go
    for row in rows:
        if row.get("group") != group:
            merged.append(row)
        elif (found := new.pop(_key(row), None)) is not None:
            merged.append(found)
            end = len(merged)
        else:
            end = len(merged)  # the row is not measured any more
    merged[end:end] = new.values()
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(merged, indent=2) + "\n")
    temporary.replace(path)


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return row["group"], row["name"], row["peer"]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def main(arguments: list[str]) -> int:
    groups = arguments or list(GROUPS)
    for name in groups:
        if name not in GROUPS:
            print(f"there is no group {name!r}; there are: {', '.join(GROUPS)}", file=sys.stderr)
            return 2
    results: list[Result] = []
    for name in groups:
        measured = list(calibration.measure())
        for result in importlib.import_module(f"bench.{name}").measure():
            print(f"{result.name}: {_number(result.value)} {result.unit}", file=sys.stderr, flush=True)
            measured.append(result)
        keep(RESULTS, name, measured)
        results += measured
    # Where the output is no terminal, a fixed width keeps numbers from being cut short.
    console = Console() if sys.stdout.isatty() else Console(width=150)
    console.print(table(results))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MissingComponent as error:
        sys.exit(str(error))
